// SPDX-License-Identifier: Apache-2.0
#include "viewer/frame/jump_box.hpp"

#include <QKeyEvent>
#include <QListWidget>
#include <algorithm>
#include <utility>

namespace kvatlas::viewer {

namespace {
constexpr int kListWidth = 460, kListHeight = 360, kRowHeight = 26;
}

JumpBox::JumpBox(Suggest suggest, QWidget* parent)
    : QLineEdit(parent), suggest_(std::move(suggest)) {
  setClearButtonEnabled(true);
  setMinimumHeight(28);
  list_ = new QListWidget(window());
  list_->setObjectName("suggestions");
  list_->setAccessibleName(tr("Suggestions"));
  list_->setFocusPolicy(Qt::NoFocus);
  list_->setUniformItemSizes(true);
  list_->setFrameShape(QFrame::StyledPanel);
  list_->hide();
  connect(this, &QLineEdit::textEdited, this, &JumpBox::refresh);
  connect(list_, &QListWidget::itemClicked, this,
          [this](QListWidgetItem* item) { take(list_->row(item)); });
}

void JumpBox::begin(const QString& text) {
  setText(text);
  setFocus(Qt::OtherFocusReason);  // other reasons select the text
  refresh();
}

void JumpBox::refresh() {
  suggestions_ = suggest_(text());
  list_->clear();
  const auto add = [&](const QString& words, bool enabled) {
    auto* item = new QListWidgetItem(words, list_);
    item->setSizeHint({0, kRowHeight});
    if (!enabled) item->setFlags(Qt::NoItemFlags);
  };
  for (const auto& suggestion : suggestions_.list)
    add(suggestion.detail.isEmpty()
            ? suggestion.title
            : QStringLiteral("%1   —   %2").arg(suggestion.title, suggestion.detail),
        suggestion.enabled);
  if (suggestions_.list.empty() && !suggestions_.problem.isEmpty())
    add(suggestions_.problem, false);
  list_->setWordWrap(suggestions_.list.empty());
  if (suggestions_.list.empty() && list_->count() == 1)
    list_->item(0)->setSizeHint({0, 3 * kRowHeight});
  setAccessibleDescription(suggestions_.problem);
  for (int row = 0; row < list_->count(); ++row)
    if ((list_->item(row)->flags() & Qt::ItemIsEnabled) != 0) {
      list_->setCurrentRow(row);
      break;
    }
  if (list_->count() == 0 || !hasFocus()) {
    list_->hide();
    return;
  }
  if (list_->parentWidget() != window()) list_->setParent(window());
  const int wide = std::max(width(), std::min(kListWidth, window()->width() - 20));
  int high = 8;
  for (int row = 0; row < list_->count(); ++row) high += list_->item(row)->sizeHint().height();
  const QPoint below = mapTo(window(), QPoint(0, height() + 2));
  list_->setGeometry(std::clamp(below.x(), 0, std::max(0, window()->width() - wide - 4)), below.y(),
                     wide, std::min(high, kListHeight));
  list_->show();
  list_->raise();
}

void JumpBox::take(int row) {
  if (row < 0 || row >= static_cast<int>(suggestions_.list.size())) return;
  const auto suggestion = suggestions_.list[row];
  if (!suggestion.enabled) return;
  leave();
  suggestion.take();
}

void JumpBox::leave() {
  clear();
  list_->hide();
  clearFocus();
  emit left();
}

void JumpBox::keyPressEvent(QKeyEvent* event) {
  const int row = list_->currentRow(), rows = list_->count();
  switch (event->key()) {
    case Qt::Key_Down:
    case Qt::Key_Up:
      if (rows > 0) {
        const int step = event->key() == Qt::Key_Down ? 1 : rows - 1;
        list_->setCurrentRow((std::max(row, 0) + step) % rows);
      }
      return;
    case Qt::Key_Return:
    case Qt::Key_Enter:
      take(row);
      return;
    case Qt::Key_Escape:
      leave();
      return;
    default:
      QLineEdit::keyPressEvent(event);
  }
}

void JumpBox::focusInEvent(QFocusEvent* event) {
  QLineEdit::focusInEvent(event);
  refresh();
}

void JumpBox::focusOutEvent(QFocusEvent* event) {
  QLineEdit::focusOutEvent(event);
  list_->hide();
}

}  // namespace kvatlas::viewer
