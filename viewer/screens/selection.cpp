// SPDX-License-Identifier: Apache-2.0
#include "viewer/screens/selection.hpp"

#include <algorithm>

namespace kvatlas::viewer {
namespace {

std::int64_t nearest(std::int64_t at, std::int64_t least, std::int64_t count) {
  return std::clamp(at, least, std::max(count - 1, least));
}

}  // namespace

Selection bounded(Selection selection, const SelectionBounds& bounds) {
  selection.layer = nearest(selection.layer, 0, bounds.layers);
  selection.head = nearest(selection.head, 0, bounds.heads);
  selection.sample =
      bounds.tokens.empty() ? 0 : std::min(selection.sample, bounds.tokens.size() - 1);
  const std::int64_t n = bounds.tokens.empty() ? 0 : bounds.tokens[selection.sample];
  selection.query = nearest(selection.query, -1, n);
  selection.key = nearest(selection.key, -1, n);
  if (auto& region = selection.region) {
    if (region->first_query >= n || region->first_key >= n) {
      region.reset();
    } else {
      region->queries = std::min(region->queries, n - region->first_query);
      region->keys = std::min(region->keys, n - region->first_key);
    }
  }
  if (auto& tokens = selection.tokens) {
    tokens->second = std::min(tokens->second, n);
    if (tokens->first >= tokens->second) tokens.reset();
  }
  return selection;
}

void SelectionModel::set(const Selection& wanted) {
  const Selection selection = bounded(wanted, bounds_);
  if (selection == current_) return;
  const bool same_head = selection.sample == current_.sample && selection.layer == current_.layer &&
                         selection.head == current_.head && selection.filter == current_.filter;
  history_.resize(place_ + 1);
  if (same_head) {
    history_.back() = selection;
  } else {
    history_.push_back(selection);
    ++place_;
  }
  current_ = selection;
  emit changed();
}

void SelectionModel::back() {
  if (can_go_back()) go_to(place_ - 1);
}

void SelectionModel::forward() {
  if (can_go_forward()) go_to(place_ + 1);
}

void SelectionModel::go_to(std::size_t place) {
  place_ = place;
  current_ = history_[place];
  emit changed();
}

void SelectionModel::reset(const Selection& selection, SelectionBounds bounds) {
  bounds_ = std::move(bounds);
  current_ = bounded(selection, bounds_);
  history_ = {current_};
  place_ = 0;
  emit changed();
}

}  // namespace kvatlas::viewer
