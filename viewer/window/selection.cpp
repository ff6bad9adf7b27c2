// SPDX-License-Identifier: Apache-2.0
#include "viewer/window/selection.hpp"

namespace kvatlas::viewer {

void SelectionModel::set(const Selection& selection) {
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

void SelectionModel::reset(const Selection& selection) {
  history_ = {selection};
  place_ = 0;
  current_ = selection;
  emit changed();
}

}  // namespace kvatlas::viewer
