// SPDX-License-Identifier: Apache-2.0
#include "viewer/frame/banner.hpp"

#include <QFrame>
#include <QHBoxLayout>
#include <QLabel>
#include <QPushButton>
#include <QStyle>
#include <QVBoxLayout>

#include "viewer/screens/control_bar.hpp"

namespace kvatlas::viewer {

namespace {
constexpr int kMost = 3;
constexpr const char* kSubject = "subject";
}  // namespace

Banners::Banners(QWidget* parent) : QWidget(parent) {
  layout_ = new QVBoxLayout(this);
  layout_->setContentsMargins({});
  layout_->setSpacing(0);
  setVisible(false);
}

void Banners::show_message(const Message& message) {
  const QString subject = message.subject.isEmpty() ? message.text : message.subject;
  dismiss(subject);
  while (layout_->count() >= kMost)
    dismiss(layout_->itemAt(0)->widget()->property(kSubject).toString());
  auto* banner = new QFrame(this);
  banner->setObjectName("banner");
  banner->setProperty(kSubject, subject);
  banner->setFrameShape(QFrame::StyledPanel);
  banner->setAutoFillBackground(true);
  auto* row = new QHBoxLayout;
  row->setContentsMargins(10, 4, 6, 4);
  auto* icon = new QLabel(banner);
  icon->setPixmap(style()
                      ->standardIcon(message.is_failure ? QStyle::SP_MessageBoxWarning
                                                        : QStyle::SP_MessageBoxInformation)
                      .pixmap(18, 18));
  auto* text = new QLabel(message.text, banner);
  text->setObjectName("text");
  text->setTextFormat(Qt::PlainText);
  text->setWordWrap(true);
  text->setTextInteractionFlags(Qt::TextSelectableByMouse | Qt::TextSelectableByKeyboard);
  text->setAccessibleName(message.is_failure ? tr("Failure") : tr("Message"));
  row->addWidget(icon);
  row->addWidget(text, 1);
  const auto add_button = [&](const QString& words, const char* name) {
    auto* button = new QPushButton(words, banner);
    button->setObjectName(name);
    button->setMinimumHeight(kControlHeight);
    row->addWidget(button);
    return button;
  };
  if (!message.offer.isEmpty())
    connect(add_button(message.offer, "accept"), &QPushButton::clicked, this,
            [this, subject, accept = message.accept] {
              dismiss(subject);
              if (accept) accept();
            });
  auto* column = new QVBoxLayout(banner);
  column->setContentsMargins({});
  column->addLayout(row);
  if (!message.details.isEmpty()) {
    auto* details = new QLabel(message.details, banner);
    details->setObjectName("details");
    details->setTextFormat(Qt::PlainText);
    details->setWordWrap(true);
    details->setContentsMargins(40, 0, 10, 8);
    details->setTextInteractionFlags(Qt::TextSelectableByMouse | Qt::TextSelectableByKeyboard);
    details->setVisible(false);
    column->addWidget(details);
    auto* button = add_button(tr("Details"), "show_details");
    button->setCheckable(true);
    connect(button, &QPushButton::toggled, details, &QWidget::setVisible);
  }
  connect(add_button(tr("Dismiss"), "dismiss"), &QPushButton::clicked, this,
          [this, subject] { dismiss(subject); });
  layout_->addWidget(banner);
  setVisible(true);
}

void Banners::dismiss(const QString& subject) {
  for (int i = layout_->count() - 1; i >= 0; --i) {
    QWidget* banner = layout_->itemAt(i)->widget();
    if (banner->property(kSubject).toString() != subject) continue;
    layout_->removeWidget(banner);
    banner->hide();
    banner->deleteLater();
  }
  setVisible(layout_->count() > 0);
}

QStringList Banners::texts() const {
  QStringList texts;
  for (int i = 0; i < layout_->count(); ++i)
    texts << layout_->itemAt(i)->widget()->findChild<QLabel*>("text")->text();
  return texts;
}

}  // namespace kvatlas::viewer
