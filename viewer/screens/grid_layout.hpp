// SPDX-License-Identifier: Apache-2.0
// Where the thumbnails of a grid of heads lie.
#pragma once

#include <QPoint>
#include <QRect>
#include <QSize>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace kvatlas::viewer {

/// Layers by heads, or heads one after the other in an order of their own.
class GridLayout {
 public:
  static constexpr int kGap = 6, kLabel = 16, kHeader = 40, kStrip = 158, kLegend = 30;

  struct Place {
    std::int64_t layer = 0, head = 0;
    double number = 0;  // that it is ordered by
  };
  using Cell = std::pair<int, int>;  // row, column

  void set_model(std::int64_t layers, std::int64_t heads);
  /// Empty: layers by heads.
  void set_order(std::vector<Place> order);
  /// Whether a head is shown, by layer * heads + head; empty: all are. Layers that have none go.
  /// False: it is so already.
  bool set_shown(std::vector<std::uint8_t> shown);
  bool is_shown(std::int64_t layer, std::int64_t head) const;
  std::int64_t shown_count() const;
  const std::vector<std::uint8_t>& shown() const { return shown_; }
  /// Of a row of layers by heads.
  std::int64_t layer_of(int row) const { return rows_[row]; }
  void set_size(int pixels) { size_ = pixels; }
  void set_room(QSize room) { room_ = room; }
  void set_scrolled(QPoint scrolled) { scrolled_ = scrolled; }

  bool ordered() const { return ordered_; }
  int size() const { return size_; }
  int rows() const;
  int columns() const;
  QSize cell() const;
  /// Of all of it, with what stands around it.
  QSize whole() const;
  int left() const { return ordered() ? kGap : kStrip; }
  int top() const { return ordered() ? kGap : kHeader; }

  std::optional<Place> place_at(int row, int column) const;
  Cell cell_of(std::int64_t layer, std::int64_t head) const;
  QRect rectangle(int row, int column) const;
  std::optional<Cell> under(QPoint position) const;
  /// Thumbnails in sight, by place from the left and the top.
  std::vector<Cell> in_sight() const;
  /// One more on each side of those, except those in sight themselves.
  std::vector<Cell> around(const std::vector<Cell>& seen) const;

 private:
  void refresh();

  std::int64_t layers_ = 0, heads_ = 0;
  std::vector<std::uint8_t> shown_;
  std::vector<std::int64_t> rows_;  // layers with heads that are shown
  std::vector<Place> whole_order_;
  bool ordered_ = false;
  std::vector<Place> order_;
  int size_ = 64;
  QSize room_;
  QPoint scrolled_;
};

}  // namespace kvatlas::viewer
