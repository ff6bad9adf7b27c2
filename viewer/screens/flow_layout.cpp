// SPDX-License-Identifier: Apache-2.0
#include "viewer/screens/flow_layout.hpp"

#include <QWidget>
#include <algorithm>

namespace kvatlas::viewer {

FlowLayout::FlowLayout(QWidget* parent, int gap) : QLayout(parent), gap_(gap) {
  setContentsMargins(0, 0, 0, 0);
}

FlowLayout::~FlowLayout() = default;

void FlowLayout::addItem(QLayoutItem* item) { items_.emplace_back(item); }

int FlowLayout::count() const { return static_cast<int>(items_.size()); }

QLayoutItem* FlowLayout::itemAt(int index) const {
  return index >= 0 && index < count() ? items_[index].get() : nullptr;
}

QLayoutItem* FlowLayout::takeAt(int index) {
  if (index < 0 || index >= count()) return nullptr;
  const auto at = items_.begin() + index;
  QLayoutItem* item = at->release();
  items_.erase(at);
  return item;
}

int FlowLayout::heightForWidth(int width) const { return arrange({0, 0, width, 0}, true); }

QSize FlowLayout::minimumSize() const {
  QSize size;
  for (const auto& item : items_) size = size.expandedTo(item->minimumSize());
  const QMargins margins = contentsMargins();
  return size.grownBy(margins);
}

void FlowLayout::setGeometry(const QRect& area) {
  QLayout::setGeometry(area);
  arrange(area, false);
}

int FlowLayout::arrange(const QRect& area, bool only_measure) const {
  const QRect inner = area.marginsRemoved(contentsMargins());
  std::vector<QLayoutItem*> row;
  int x = inner.x(), y = inner.y(), row_height = 0;
  // Items of a row stand on its middle line.
  const auto end_row = [&] {
    int at = inner.x();
    for (QLayoutItem* item : row) {
      const QSize size = item->sizeHint();
      if (!only_measure)
        item->setGeometry({QPoint(at, y + (row_height - size.height()) / 2), size});
      at += size.width() + gap_;
    }
    if (!row.empty()) y += row_height + gap_;
    row.clear();
    x = inner.x();
    row_height = 0;
  };
  for (const auto& item : items_) {
    if (item->isEmpty()) continue;
    const QSize size = item->sizeHint();
    if (!row.empty() && x + size.width() > inner.x() + inner.width()) end_row();
    row.push_back(item.get());
    x += size.width() + gap_;
    row_height = std::max(row_height, size.height());
  }
  end_row();
  const int used = y - inner.y() - (y > inner.y() ? gap_ : 0);
  const QMargins margins = contentsMargins();
  return used + margins.top() + margins.bottom();
}

}  // namespace kvatlas::viewer
