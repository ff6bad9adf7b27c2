// SPDX-License-Identifier: Apache-2.0
// The place that is chosen, which all screens share, with a history.
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
  std::size_t sample = 0;             // position of the sample in the profile
  std::int64_t layer = 0, head = 0;   // the head is a query head
  std::int64_t query = -1, key = -1;  // tokens; -1 for none
  std::optional<TokenRectangle> region;
  /// The prompt's tokens that all screens show: the first, and one past the last. None if they show
  /// all.
  std::optional<std::pair<std::int64_t, std::int64_t>> tokens;
  Reduction reduction = Reduction::mean;
  std::string filter = {};  // filter of the grid of heads (viewer/models/head_filter.hpp)
  bool operator==(const Selection&) const = default;
};

/// The layers, heads and tokens that a profile has.
struct SelectionBounds {
  std::int64_t layers = 0, heads = 0;
  std::vector<std::int64_t> tokens;  // prompt length of each sample
};
/// The selection moved to the nearest place that the profile has. A region or a range of tokens
/// that begins beyond the end of the sample is dropped.
Selection bounded(Selection selection, const SelectionBounds& bounds);

class SelectionModel : public QObject {
  Q_OBJECT

 public:
  using QObject::QObject;
  /// The present selection, which is always within the bounds of the last reset().
  const Selection& current() const { return current_; }
  /// Another query, key or region replaces the newest entry of the history; another sample, layer,
  /// head or filter adds an entry.
  void set(const Selection& selection);
  /// The same, with what `change` makes of the present one.
  template <class Change>
  void change(Change change) {
    Selection selection = current_;
    change(selection);
    set(selection);
  }
  bool can_go_back() const { return place_ > 0; }
  bool can_go_forward() const { return place_ + 1 < history_.size(); }
  void back();
  void forward();
  /// Forgets the history, for another profile is open.
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
