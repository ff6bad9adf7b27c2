// SPDX-License-Identifier: Apache-2.0
#include "viewer/frame/dialog_parts.hpp"

#include <QCoreApplication>
#include <QFileDialog>
#include <QHBoxLayout>
#include <QInputDialog>
#include <QLineEdit>
#include <QPushButton>
#include <QSpinBox>
#include <algorithm>

namespace kvatlas::viewer {

QSpinBox* new_token_box(QWidget* parent) {
  auto* box = new QSpinBox(parent);
  box->setRange(1, kMostTokens);
  box->setSuffix(QCoreApplication::translate("Dialogs", " tokens"));
  return box;
}

int in_token_box(std::int64_t tokens) {
  return static_cast<int>(std::clamp<std::int64_t>(tokens, 1, kMostTokens));
}

QHBoxLayout* path_row(QLineEdit* path, const QString& title, PathUse use) {
  auto* button =
      new QPushButton(QCoreApplication::translate("Dialogs", "Choose…"), path->parentWidget());
  button->setAccessibleName(title);
  for (QWidget* control : {static_cast<QWidget*>(path), static_cast<QWidget*>(button)})
    control->setMinimumHeight(kControlHeight);
  QObject::connect(button, &QPushButton::clicked, path, [path, title, use] {
    auto* dialog = new QFileDialog(path->window(), title, path->text());
    dialog->setAttribute(Qt::WA_DeleteOnClose);
    if (use == PathUse::write_into_folder) dialog->setFileMode(QFileDialog::Directory);
    if (use == PathUse::write) dialog->setAcceptMode(QFileDialog::AcceptSave);
    dialog->setOption(QFileDialog::DontConfirmOverwrite);
    QObject::connect(dialog, &QFileDialog::fileSelected, path, &QLineEdit::setText);
    dialog->open();
  });
  auto* row = new QHBoxLayout;
  row->addWidget(path, 1);
  row->addWidget(button);
  return row;
}

QInputDialog* new_question(QWidget* parent, const QString& title, const QString& label) {
  auto* dialog = new QInputDialog(parent);
  dialog->setAttribute(Qt::WA_DeleteOnClose);
  dialog->setWindowTitle(title);
  dialog->setLabelText(label);
  return dialog;
}

}  // namespace kvatlas::viewer
