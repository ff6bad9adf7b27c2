// SPDX-License-Identifier: Apache-2.0
// What is chosen, for all screens at once, with a history.
#pragma once

#include <QObject>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "viewer/maps/tile_plan.hpp"
#include "viewer/maps/tiles.hpp"

namespace kvatlas::viewer {

struct Selection {
  std::size_t sample = 0;             // position in the profile
  std::int64_t layer = 0, head = 0;   // a query head
  std::int64_t query = -1, key = -1;  // tokens; -1: none
  std::optional<TokenRectangle> region;
  /// First and one past the last of the prompt's tokens that all screens show; none: all.
  std::optional<std::pair<std::int64_t, std::int64_t>> tokens;
  Reduction reduction = Reduction::mean;
  std::string filter = {};  // of the grid of heads (viewer/models/head_filter.hpp)
  bool operator==(const Selection&) const = default;
};

/// What a profile has to choose from.
struct SelectionBounds {
  std::int64_t layers = 0, heads = 0;
  std::vector<std::int64_t> tokens;  // of each sample
};
/// What of it the profile does not have becomes the nearest that it has; a region or a range of
/// tokens that begins beyond the sample's end is dropped.
Selection bounded(Selection selection, const SelectionBounds& bounds);

class SelectionModel : public QObject {
  Q_OBJECT

 public:
  using QObject::QObject;
  /// Always within the bounds of the last reset().
  const Selection& current() const { return current_; }
  /// Moves within one head (query, key, region) replace the newest entry of the history; another
  /// sample, layer, head or filter appends one.
  void set(const Selection& selection);
  bool can_go_back() const { return place_ > 0; }
  bool can_go_forward() const { return place_ + 1 < history_.size(); }
  void back();
  void forward();
  /// Forgets all: another profile.
  void reset(const Selection& selection, SelectionBounds bounds);

 signals:
  void changed();

 private:
  void go_to(std::size_t place);

  Selection current_;
  std::vector<Selection> history_{Selection{}};
  std::size_t place_ = 0;
  SelectionBounds bounds_;
};

}  // namespace kvatlas::viewer
