// SPDX-License-Identifier: Apache-2.0
#include "viewer/screens/grid_layout.hpp"

#include <algorithm>
#include <iterator>

namespace kvatlas::viewer {

void GridLayout::set_model(std::int64_t layers, std::int64_t heads) {
  if (layers != layers_ || heads != heads_) shown_.clear();
  layers_ = layers;
  heads_ = heads;
  refresh();
}

void GridLayout::set_order(std::vector<Place> order) {
  whole_order_ = std::move(order);
  refresh();
}

bool GridLayout::set_shown(std::vector<std::uint8_t> shown) {
  if (shown == shown_) return false;
  shown_ = std::move(shown);
  refresh();
  return true;
}

bool GridLayout::is_shown(std::int64_t layer, std::int64_t head) const {
  const auto at = static_cast<std::size_t>(layer * heads_ + head);
  return at >= shown_.size() || shown_[at] != 0;
}

std::int64_t GridLayout::shown_count() const {
  return shown_.empty() ? layers_ * heads_ : std::count(shown_.begin(), shown_.end(), 1);
}

void GridLayout::refresh() {
  ordered_ = !whole_order_.empty();
  order_.clear();
  std::copy_if(whole_order_.begin(), whole_order_.end(), std::back_inserter(order_),
               [this](const Place& place) { return is_shown(place.layer, place.head); });
  rows_.clear();
  for (std::int64_t layer = 0; layer < layers_; ++layer)
    for (std::int64_t head = 0; head < heads_; ++head)
      if (is_shown(layer, head) && (rows_.empty() || rows_.back() != layer)) rows_.push_back(layer);
}

int GridLayout::columns() const {
  if (!ordered()) return static_cast<int>(heads_);
  return std::max(1, (room_.width() - kGap) / cell().width());
}

int GridLayout::rows() const {
  if (!ordered()) return static_cast<int>(rows_.size());
  const int per_row = columns();
  return (static_cast<int>(order_.size()) + per_row - 1) / per_row;
}

QSize GridLayout::cell() const {
  // In an order of their own thumbnails carry their names.
  const int label = ordered() ? 2 * kLabel : 0;
  return {std::max(size_, ordered() ? 64 : 0) + kGap, size_ + label + kGap};
}

QSize GridLayout::whole() const {
  return {left() + columns() * cell().width(), top() + rows() * cell().height() + kLegend};
}

std::optional<GridLayout::Place> GridLayout::place_at(int row, int column) const {
  if (row < 0 || column < 0 || row >= rows() || column >= columns()) return std::nullopt;
  if (!ordered())
    return is_shown(layer_of(row), column) ? std::optional(Place{layer_of(row), column, 0})
                                           : std::nullopt;
  const auto at = static_cast<std::size_t>(row) * static_cast<std::size_t>(columns()) +
                  static_cast<std::size_t>(column);
  if (at >= order_.size()) return std::nullopt;
  return order_[at];
}

GridLayout::Cell GridLayout::cell_of(std::int64_t layer, std::int64_t head) const {
  if (!ordered())
    return {static_cast<int>(std::lower_bound(rows_.begin(), rows_.end(), layer) - rows_.begin()),
            static_cast<int>(head)};
  const auto found = std::find_if(order_.begin(), order_.end(), [&](const Place& place) {
    return place.layer == layer && place.head == head;
  });
  const int at = found == order_.end() ? 0 : static_cast<int>(found - order_.begin());
  return {at / columns(), at % columns()};
}

QRect GridLayout::rectangle(int row, int column) const {
  return {left() + column * cell().width() - scrolled_.x(),
          top() + row * cell().height() - scrolled_.y(), size_, size_};
}

std::optional<GridLayout::Cell> GridLayout::under(QPoint position) const {
  if (position.y() >= room_.height() - kLegend) return std::nullopt;
  if (!ordered() && (position.x() < kStrip || position.y() < kHeader)) return std::nullopt;
  const QRect first = rectangle(0, 0);
  if (position.x() < first.left() || position.y() < first.top()) return std::nullopt;
  const Cell cell_there{(position.y() - first.top()) / cell().height(),
                        (position.x() - first.left()) / cell().width()};
  if (!place_at(cell_there.first, cell_there.second)) return std::nullopt;
  return cell_there;
}

std::vector<GridLayout::Cell> GridLayout::in_sight() const {
  std::vector<Cell> found;
  const QSize step = cell();
  const auto span = [](int origin, int cell_size, int shown, int count, int room) {
    // From the first one whose end is in the room to the last one whose begin is.
    const int first = std::max(0, (-origin - shown + cell_size) / cell_size);
    const int last = room <= origin ? 0 : std::min(count, (room - origin - 1) / cell_size + 1);
    return std::pair(first, last);
  };
  const QRect origin = rectangle(0, 0);
  const auto down = span(origin.top(), step.height(), size_, rows(), room_.height());
  const auto across = span(origin.left(), step.width(), size_, columns(), room_.width());
  for (int row = down.first; row < down.second; ++row)
    for (int column = across.first; column < across.second; ++column)
      if (place_at(row, column)) found.emplace_back(row, column);
  return found;
}

std::vector<GridLayout::Cell> GridLayout::around(const std::vector<Cell>& seen) const {
  std::vector<Cell> ring;
  if (seen.empty()) return ring;
  const auto columns_seen = std::minmax_element(
      seen.begin(), seen.end(), [](const Cell& a, const Cell& b) { return a.second < b.second; });
  const int left = columns_seen.first->second, right = columns_seen.second->second;
  const int top = seen.front().first, bottom = seen.back().first;
  for (int row = top - 1; row <= bottom + 1; ++row)
    for (int column = left - 1; column <= right + 1; ++column)
      if ((row < top || row > bottom || column < left || column > right) && place_at(row, column))
        ring.emplace_back(row, column);
  return ring;
}

}  // namespace kvatlas::viewer
