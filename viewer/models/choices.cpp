// SPDX-License-Identifier: Apache-2.0
#include "viewer/models/choices.hpp"

#include <algorithm>
#include <optional>
#include <variant>

#include "analyzer/profile/checked_arrays.hpp"
#include "base/error.hpp"
#include "calibrate/policy/method.hpp"

namespace kvatlas::viewer {

namespace {

using calibrate::Document;

/// The section's policy; nothing if no document has it, or only what cannot be set here.
template <class Part>
std::optional<Part> part_in(std::span<const Document> documents, const char* section) {
  for (const Document& document : documents) {
    const auto found = document.sections.find(section);
    if (found == document.sections.end()) continue;
    const auto part = calibrate::part_of(section, *found);
    if (const auto* wanted = std::get_if<Part>(&part)) return *wanted;
  }
  return std::nullopt;
}

/// `wanted` if the grid has it, else the grid's first.
kernels::Proximity in_grid(const profile::Header& header, kernels::Proximity wanted) {
  const auto& grid = profile::axis_of(header, "proximity");
  if (grid.columns.size() != 2 || grid.values.size() < 2 ||
      profile::row_of(grid, {wanted.initial, wanted.recent}))
    return wanted;
  return {grid.values[0], grid.values[1]};
}

/// Likewise of the budgets that leave more than the window.
std::int64_t in_grid(const profile::Header& header, std::int64_t wanted, std::int64_t window) {
  const auto& grid = profile::axis_of(header, "budget");
  if (profile::row_of(grid, {wanted})) return wanted;
  const auto first = std::find_if(grid.values.begin(), grid.values.end(),
                                  [&](std::int64_t budget) { return budget > window; });
  return first == grid.values.end() ? wanted : *first;
}

}  // namespace

void take_settings(Choices& choices, const profile::Header& header,
                   std::span<const Document> documents) {
  if (const auto lazy =
          part_in<calibrate::SimLayerKv>(documents, calibrate::method::kSimLayerKv.name)) {
    choices.lazy_arrays = {lazy->keep, lazy->identify, lazy->w_last};
    choices.lazy.threshold = lazy->threshold;
    choices.lazy.per_head = lazy->per_head;
    choices.lazy.fixed = lazy->fixed.has_value();
  }
  choices.lazy_arrays.keep = in_grid(header, choices.lazy_arrays.keep);
  if (const auto pod = part_in<calibrate::Pod>(documents, calibrate::method::kPod.name)) {
    choices.blocks.delta = pod->delta;
    choices.blocks.proximal = pod->proximal;
    choices.blocks.per_query_head = pod->per_query_head;
  }
  choices.blocks.proximal = in_grid(header, choices.blocks.proximal);
  if (const auto dynamic =
          part_in<calibrate::DynamicKv>(documents, calibrate::method::kDynamicKv.name)) {
    choices.budget_counts = {dynamic->select.window, dynamic->select.kernel,
                             dynamic->select.pooling};
    choices.budgets.budget = dynamic->select.budget;
    choices.budgets.r_max = dynamic->r_max;
  }
  choices.budgets.budget = in_grid(header, choices.budgets.budget, choices.budget_counts.window);
}

Choices initial_choices(const profile::Header& header, const std::vector<profile::Sample>& samples,
                        std::span<const Document> documents) {
  Choices choices;
  take_settings(choices, header, documents);
  std::int64_t longest = 0;
  for (const auto& sample : samples) longest = std::max(longest, sample.n_tokens);
  set_length(choices, longest);
  return choices;
}

void set_length(Choices& choices, std::int64_t length) {
  choices.length = choices.lazy.length = choices.blocks.length = choices.sweep.length = length;
}

}  // namespace kvatlas::viewer
