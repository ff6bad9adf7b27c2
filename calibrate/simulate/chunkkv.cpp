// SPDX-License-Identifier: Apache-2.0
// ChunkKV: SnapKV's scores decide on chunks of neighbouring tokens, for all heads of a layer alike.
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>

#include "calibrate/simulate/plan_impl.hpp"
#include "kernels/select.hpp"

namespace kvatlas::calibrate {
namespace {

/// Of the scores of a layer's tokens, [rows, tokens], what each chunk has: the sum over the rows,
/// in the mean over its tokens. The last chunk may be shorter.
at::Tensor chunk_scores(const at::Tensor& scores, std::int64_t chunk) {
  const at::Tensor sums = scores.sum(0);
  const std::int64_t rest = sums.size(0) % chunk, whole = sums.size(0) - rest;
  const at::Tensor means = sums.narrow(0, 0, whole).view({-1, chunk}).mean(1);
  return rest == 0 ? means : at::cat({means, sums.narrow(0, whole, rest).mean(0, true)});
}

}  // namespace

PartPlanner planner_of(const ChunkKv& part) {
  PartPlanner planner;
  planner.needs.rows = part.select.window;
  planner.cut = [&part](Draft& draft) {
    const std::int64_t n = draft.facts.n, kept = part.chunks_kept(n);
    if (kept == part.chunks(n)) return;
    for (std::int64_t layer = 0; layer < draft.layers(); ++layer) {
      const at::Tensor scores =
          with_window(window_scores(part.select, draft, layer), part.select.window).cpu();
      // From the last chunk to the first: of equal ones the later is kept.
      const at::Tensor turned = chunk_scores(scores, part.chunk).flip(0).contiguous();
      std::vector<std::int64_t> tokens;
      std::vector<bool> keeps(static_cast<std::size_t>(turned.size(0)));
      kernels::select_largest(turned.const_data_ptr<float>(), 1, turned.size(0), kept,
                              [&](std::int64_t i) { keeps[turned.size(0) - 1 - i] = true; });
      for (std::int64_t j = 0; j < draft.n; ++j)
        if (j >= n || keeps[j / part.chunk]) tokens.push_back(j);
      draft.select_in_layer(layer, {tokens});
    }
  };
  return planner;
}

}  // namespace kvatlas::calibrate
