// SPDX-License-Identifier: Apache-2.0
// Continuations that have read the same tokens, and whose plans are alike in the first layers, are
// one there: they branch off in the first layer in which their plans differ.
#include <algorithm>

#include "calibrate/simulate/continuations_impl.hpp"

namespace kvatlas::calibrate {
namespace {

/// Whether two plans can differ in some layers alone. Not where layers are changed together, or
/// where each continuation counts for itself what it reads.
bool comparable(const Plan& a, const Plan& b) {
  for (const Plan* plan : {&a, &b})
    if (plan->minicache || plan->shared_values || plan->quest || (plan->pod && plan->pod->tau < 1))
      return false;
  return a.delay == b.delay && a.scales == b.scales && a.kv_residual == b.kv_residual &&
         a.fp8_queries == b.fp8_queries && a.lag == b.lag && a.decoding == b.decoding &&
         a.cut_heads == b.cut_heads && a.mean_queries == b.mean_queries &&
         a.pod.has_value() == b.pod.has_value() && (!a.pod || a.pod->proximal == b.pod->proximal);
}

/// Whether the query heads take the same keys in a layer.
bool alike(const Pod& a, const Pod& b, std::int64_t layer) {
  return std::equal(a.lowest.begin(), a.lowest.end(), b.lowest.begin(), b.lowest.end(),
                    [&](const auto& x, const auto& y) { return x[layer] == y[layer]; });
}

}  // namespace

std::int64_t Continuations::State::apart_from(const Plan& a, const Plan& b) const {
  if (engine.has_layer_states() || !comparable(a, b)) return 0;
  std::int64_t layer = 0;
  while (layer < config.n_layers && a.heads[layer] == b.heads[layer] &&
         a.formats_of(layer) == b.formats_of(layer) && (!a.pod || alike(*a.pod, *b.pod, layer)))
    ++layer;
  return layer;
}

std::vector<std::size_t> Continuations::State::find_branches(
    std::span<const std::size_t> which, std::vector<capture::Branch>& branches) const {
  struct Found {
    std::size_t row, of;  // in `which`
    std::int64_t layer;
  };
  std::vector<Found> found;
  for (std::size_t row = 0; row < which.size(); ++row) {
    const Stream& own = streams[which[row]];
    Found best{row, row, 0};
    for (std::size_t of = 0; of < row; ++of) {
      const auto [earlier, later] = std::minmax(which[of], which[row]);
      // Of those that it leaves latest it leaves the first, which leaves others earlier.
      if (const auto layer = streams[later].apart[earlier];
          layer > best.layer && streams[which[of]].tokens == own.tokens)
        best = {row, of, layer};
    }
    found.push_back(best);
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const Found& a, const Found& b) { return a.layer < b.layer; });
  std::vector<std::size_t> order, place(which.size());
  branches.clear();
  for (const Found& one : found) {
    place[one.row] = order.size();
    order.push_back(one.row);
    branches.push_back({place[one.of], one.layer});
  }
  return order;
}

}  // namespace kvatlas::calibrate
