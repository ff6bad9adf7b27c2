// SPDX-License-Identifier: Apache-2.0
#include "viewer/frame/start_page.hpp"

#include <QFileInfo>
#include <QFontDatabase>
#include <QLabel>
#include <QPushButton>
#include <QVBoxLayout>

namespace kvatlas::viewer {

namespace {
constexpr int kWidth = 720, kMostFiles = 6;
}

StartPage::StartPage(QWidget* parent) : QWidget(parent) {
  auto* inner = new QWidget(this);
  inner->setMaximumWidth(kWidth);
  auto* column = new QVBoxLayout(inner);
  column->setSpacing(12);
  const auto add_text = [&](const QString& text, int points_more, bool bold) {
    auto* label = new QLabel(text, inner);
    QFont larger = font();
    larger.setPointSize(larger.pointSize() + points_more);
    larger.setBold(bold);
    label->setFont(larger);
    label->setWordWrap(true);
    column->addWidget(label);
    return label;
  };
  add_text(tr("Look at attention, decide the cache policy"), 6, true);
  add_text(tr("Open a profile (.h5), and the policy document (.json) that was calibrated from it. "
              "Or drag files onto this window."),
           0, false);
  auto* open = new QPushButton(tr("Open…"), inner);
  open->setMinimumHeight(32);
  open->setMaximumWidth(140);
  open->setDefault(true);
  column->addWidget(open);
  connect(open, &QPushButton::clicked, this, &StartPage::open_wanted);
  recent_ = new QVBoxLayout;
  recent_->setSpacing(2);
  column->addLayout(recent_);
  add_text(tr("No profile yet? These two commands make both files:"), 0, true);
  auto* commands = add_text(
      QStringLiteral("kvatlas profile --model MODEL --task needle --lengths 512 --depths 0.5 "
                     "--seeds 10 -o p.h5\n"
                     "kvatlas calibrate all -p p.h5 --model MODEL -o policy.json"),
      0, false);
  commands->setFont(QFontDatabase::systemFont(QFontDatabase::FixedFont));
  commands->setTextInteractionFlags(Qt::TextSelectableByMouse | Qt::TextSelectableByKeyboard);
  commands->setAccessibleName(tr("Commands that make a profile and a policy"));
  add_text(
      tr("With a model of 135M parameters the first takes a minute or two on two cores. Without "
         "--task, --lengths, --depths and --seeds it takes more kinds of prompts, and about 25 "
         "minutes."),
      0, false);
  add_text(tr("Attention maps of the first two prompts are recorded; --map-samples takes more. "
              "? shows all keys, Ctrl+P jumps anywhere, Ctrl+Shift+P finds every command."),
           0, false);
  auto* layout = new QVBoxLayout(this);
  layout->addStretch(1);
  auto* middle = new QHBoxLayout;
  middle->addStretch(1);
  middle->addWidget(inner, 20);
  middle->addStretch(1);
  layout->addLayout(middle);
  layout->addStretch(2);
}

void StartPage::set_recent(const QStringList& files) {
  while (auto* item = recent_->takeAt(0)) {
    delete item->widget();
    delete item;
  }
  if (files.isEmpty()) return;
  auto* title = new QLabel(tr("Recent files"), this);
  QFont bold = font();
  bold.setBold(true);
  title->setFont(bold);
  recent_->addWidget(title);
  for (const auto& path : files.mid(0, kMostFiles)) {
    auto* button = new QPushButton(
        QStringLiteral("%1   —   %2").arg(QFileInfo(path).fileName(), QFileInfo(path).path()),
        this);
    button->setFlat(true);
    button->setMinimumHeight(26);
    button->setStyleSheet(QStringLiteral("text-align: left; padding-left: 6px"));
    connect(button, &QPushButton::clicked, this, [this, path] { emit file_wanted(path); });
    recent_->addWidget(button);
  }
}

}  // namespace kvatlas::viewer
