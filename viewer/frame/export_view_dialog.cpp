// SPDX-License-Identifier: Apache-2.0
#include "viewer/frame/export_view_dialog.hpp"

#include <QCheckBox>
#include <QComboBox>
#include <QDialogButtonBox>
#include <QDoubleSpinBox>
#include <QFileInfo>
#include <QFormLayout>
#include <QLabel>
#include <QLineEdit>
#include <QPushButton>
#include <exception>
#include <utility>

#include "viewer/frame/dialog_parts.hpp"

namespace kvatlas::viewer {

namespace {
constexpr int kPng = 0, kPdf = 2;
const char* const kEndings[] = {".png", ".svg", ".pdf", ".csv"};
}  // namespace

ExportViewDialog::ExportViewDialog(PicturePtr picture, const Theme& theme, Origin origin,
                                   const QString& path, QWidget* parent)
    : QDialog(parent), picture_(std::move(picture)), theme_(theme), origin_(std::move(origin)) {
  setWindowTitle(tr("Export view"));
  setAttribute(Qt::WA_DeleteOnClose);
  resize(560, 0);
  format_ = new QComboBox(this);
  format_->setObjectName("format");
  format_->addItems(
      {tr("PNG image"), tr("SVG drawing"), tr("PDF page"), tr("CSV: the numbers behind it")});
  scale_ = new QDoubleSpinBox(this);
  scale_->setObjectName("scale");
  scale_->setRange(0.5, 8);
  scale_->setSingleStep(0.5);
  scale_->setValue(2);
  scale_->setSuffix(tr(" pixels a unit"));
  size_ = new QLabel(this);
  size_->setObjectName("size");
  transparent_ = new QCheckBox(tr("Transparent ground"), this);
  transparent_->setObjectName("transparent");
  light_ = new QCheckBox(tr("In light colours, as for paper"), this);
  light_->setChecked(true);
  path_ = new QLineEdit(path + kEndings[kPng], this);
  path_->setObjectName("path");
  problem_ = new QLabel(this);
  problem_->setObjectName("problem");
  problem_->setWordWrap(true);
  auto* buttons = new QDialogButtonBox(QDialogButtonBox::Cancel, this);
  save_ = buttons->addButton(tr("Save"), QDialogButtonBox::AcceptRole);
  save_->setObjectName("save");
  auto* form = new QFormLayout(this);
  form->addRow(new QLabel(QString::fromStdString(picture_->title()), this));
  form->addRow(tr("Format"), format_);
  form->addRow(tr("Scale"), scale_);
  form->addRow(tr("Size"), size_);
  form->addRow({}, transparent_);
  form->addRow({}, light_);
  form->addRow(tr("File"), path_row(path_, tr("Export view to"), PathUse::write));
  form->addRow(problem_);
  form->addRow(buttons);
  for (QWidget* control : {static_cast<QWidget*>(format_), static_cast<QWidget*>(scale_)})
    control->setMinimumHeight(kControlHeight);
  connect(format_, &QComboBox::currentIndexChanged, this, [this](int format) {
    const QFileInfo file(path_->text());
    path_->setText(file.path() + "/" + file.completeBaseName() + kEndings[format]);
    refresh();
  });
  connect(path_, &QLineEdit::textChanged, this, &ExportViewDialog::refresh);
  connect(scale_, &QDoubleSpinBox::valueChanged, this, &ExportViewDialog::refresh);
  connect(save_, &QPushButton::clicked, this, &ExportViewDialog::save);
  connect(buttons, &QDialogButtonBox::rejected, this, &QDialog::close);
  refresh();
}

void ExportViewDialog::refresh() {
  const QSizeF size = picture_->size() * scale_->value();
  size_->setText(
      format_->currentIndex() == kPng
          ? tr("%1 × %2 pixels").arg(size.width(), 0, 'f', 0).arg(size.height(), 0, 'f', 0)
          : tr("as large as one likes"));
  scale_->setEnabled(format_->currentIndex() == kPng);
  transparent_->setEnabled(format_->currentIndex() <= kPdf);
  light_->setEnabled(format_->currentIndex() <= kPdf);
  const bool exists = QFileInfo::exists(path_->text());
  save_->setText(exists ? tr("Replace") : tr("Save"));
  problem_->setText(exists ? tr("There is a file of that name: it would be replaced.") : QString());
}

void ExportViewDialog::save() {
  const QString path = path_->text().trimmed();
  try {
    Theme theme = theme_;
    if (light_->isChecked()) {
      theme = make_theme(false, theme_.font);
      theme.colours = theme_.colours;
    }
    // What appeared since the button was named is not replaced.
    const bool force = save_->text() == tr("Replace");
    save_picture(*picture_, theme,
                 {.scale = scale_->value(), .transparent = transparent_->isChecked()}, origin_,
                 path.toStdString(), force);
  } catch (const std::exception& error) {
    refresh();
    problem_->setText(QString::fromUtf8(error.what()));
    return;
  }
  emit written(path);
  close();
}

}  // namespace kvatlas::viewer
