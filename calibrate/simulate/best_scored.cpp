// SPDX-License-Identifier: Apache-2.0
// What the methods share that score tokens and keep the best of them.
#include <utility>

#include "calibrate/simulate/plan_impl.hpp"
#include "kernels/select.hpp"

namespace kvatlas::calibrate {

std::vector<std::int64_t> best_and_rest(const float* scores, std::int64_t positions,
                                        std::int64_t best, std::int64_t begin, std::int64_t n) {
  return kernels::best_and_rest(kernels::by_score(scores, positions, best), best, begin, n);
}

std::vector<std::vector<std::int64_t>> best_of_rows(const at::Tensor& scores, std::int64_t best,
                                                    std::int64_t n) {
  const std::int64_t positions = scores.size(1);
  std::vector<std::vector<std::int64_t>> tokens;
  for (std::int64_t row = 0; row < scores.size(0); ++row)
    tokens.push_back(best_and_rest(scores[row].contiguous().const_data_ptr<float>(), positions,
                                   best, positions, n));
  return tokens;
}

std::vector<std::vector<std::int64_t>> best_together(const std::vector<float>& scores,
                                                     std::int64_t positions, std::int64_t best) {
  std::vector<std::vector<std::int64_t>> tokens(scores.size() / positions);
  kernels::select_largest(scores.data(), 1, std::ssize(scores), best,
                          [&](std::int64_t j) { tokens[j / positions].push_back(j % positions); });
  return tokens;
}

PartPlanner best_scored(Needs needs, std::int64_t budget, LayerScores scores_of) {
  PartPlanner planner;
  planner.needs = std::move(needs);
  planner.cut = [budget, scores_of = std::move(scores_of)](Draft& draft) {
    if (draft.facts.n <= budget) return;
    for (std::int64_t layer = 0; layer < draft.layers(); ++layer) {
      const at::Tensor scores = scores_of(draft, layer).cpu();
      const std::int64_t without_score = draft.facts.n - scores.size(1);
      draft.select_in_layer(layer, best_of_rows(scores, budget - without_score, draft.n));
    }
  };
  return planner;
}

}  // namespace kvatlas::calibrate
