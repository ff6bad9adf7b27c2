// SPDX-License-Identifier: Apache-2.0
// The places of the thumbnails in a grid of heads.
#pragma once

#include <QPoint>
#include <QRect>
#include <QSize>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace kvatlas::viewer {

/// A grid of layers by heads, or all heads one after the other in some order.
class GridLayout {
 public:
  static constexpr int kGap = 6, kLabel = 16, kHeader = 40, kStrip = 158, kLegend = 30;

  struct Place {
    std::int64_t layer = 0, head = 0;
    double number = 0;  // the number by which the heads are ordered
  };
  using Cell = std::pair<int, int>;  // row, column

  void set_model(std::int64_t layers, std::int64_t heads);
  /// An empty order means layers by heads.
  void set_order(std::vector<Place> order);
  /// Sets which heads are shown, by layer * heads + head; all are if the list is empty. Layers
  /// without a head that is shown disappear. False if nothing changes.
  bool set_shown(std::vector<std::uint8_t> shown);
  bool is_shown(std::int64_t layer, std::int64_t head) const;
  std::int64_t shown_count() const;
  const std::vector<std::uint8_t>& shown() const { return shown_; }
  /// The layer that a row of layers by heads shows.
  std::int64_t layer_of(int row) const { return rows_[row]; }
  void set_size(int pixels) { size_ = pixels; }
  void set_room(QSize room) { room_ = room; }
  void set_scrolled(QPoint scrolled) { scrolled_ = scrolled; }

  bool ordered() const { return ordered_; }
  int size() const { return size_; }
  int rows() const;
  int columns() const;
  QSize cell() const;
  /// The size of the whole grid with its labels.
  QSize whole() const;
  int left() const { return ordered() ? kGap : kStrip; }
  int top() const { return ordered() ? kGap : kHeader; }

  std::optional<Place> place_at(int row, int column) const;
  Cell cell_of(std::int64_t layer, std::int64_t head) const;
  QRect rectangle(int row, int column) const;
  std::optional<Cell> under(QPoint position) const;
  /// The thumbnails in sight, from the left and the top.
  std::vector<Cell> in_sight() const;
  /// The thumbnails that lie directly around those in sight.
  std::vector<Cell> around(const std::vector<Cell>& seen) const;

 private:
  void refresh();

  std::int64_t layers_ = 0, heads_ = 0;
  std::vector<std::uint8_t> shown_;
  std::vector<std::int64_t> rows_;  // layers that have heads to show
  std::vector<Place> whole_order_;
  bool ordered_ = false;
  std::vector<Place> order_;
  int size_ = 64;
  QSize room_;
  QPoint scrolled_;
};

}  // namespace kvatlas::viewer
