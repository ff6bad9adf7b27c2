// SPDX-License-Identifier: Apache-2.0
// Quest: the cache is not cut; each step reads the pages whose keys may score highest.
#include <algorithm>

#include <ATen/TensorOperators.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/amin.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/topk.h>

#include "analyzer/capture/tensors-inl.hpp"
#include "calibrate/simulate/plan_impl.hpp"
#include "calibrate/simulate/quest_impl.hpp"

namespace kvatlas::calibrate {

PartPlanner planner_of(const Quest& part) {
  PartPlanner planner;
  planner.cut = [&part](Draft& draft) { draft.plan.quest = part; };
  return planner;
}

const QuestPages::Bounds& QuestPages::bounds(std::int64_t layer, std::int64_t page,
                                             const AnyView<3>& keys, std::int64_t n_tokens) {
  Bounds& known = bounds_[{layer, page}];
  if (known.least.defined()) return known;
  const at::Tensor all = capture::tensor_of(keys).to(at::kFloat);
  std::vector<at::Tensor> least, greatest;
  for (std::int64_t first = 0; first < n_tokens; first += page) {
    const at::Tensor tokens = all.narrow(1, first, std::min(page, n_tokens - first));
    least.push_back(at::amin(tokens, 1));
    greatest.push_back(at::amax(tokens, 1));
  }
  known = {at::stack(least, 1), at::stack(greatest, 1)};
  return known;
}

std::vector<Ranges> QuestPages::choose(const Quest& quest, const capture::ContinuationRows& in,
                                       std::int64_t row, const AnyView<3>& prompt_keys,
                                       std::int64_t n_tokens, double& read_bytes) {
  const Bounds& of = bounds(in.layer, quest.page, prompt_keys, n_tokens);
  const std::int64_t K = config_.n_kv_heads, group = config_.n_heads / K, d = config_.head_dim;
  // The first token that this layer sees; pages before it are no candidates.
  const std::int64_t begin = in.window.first_key(in.position);
  const std::int64_t hidden = std::min(begin / quest.page, of.least.size(1));
  const std::int64_t pages = of.least.size(1) - hidden;
  const std::int64_t wanted = std::min(pages, std::max<std::int64_t>(1, quest.budget / quest.page));
  const at::Tensor query = capture::tensor_of(in.query)[row].to(at::kFloat).view({K, group, 1, d});
  const at::Tensor least = of.least.narrow(1, hidden, pages),
                   greatest = of.greatest.narrow(1, hidden, pages);
  // [K, group, pages]: the most that a key of the page can score; the mean over the group.
  const at::Tensor score =
      at::maximum(query * least.unsqueeze(1), query * greatest.unsqueeze(1)).sum(-1).mean(1);
  const at::Tensor best =
      std::get<1>(at::topk(score, wanted, 1)).to(at::kCPU, at::kLong).contiguous();
  std::vector<Ranges> ranges(static_cast<std::size_t>(K));
  std::int64_t tokens = 0;
  for (std::int64_t g = 0; g < K; ++g) {
    const auto* first = best.const_data_ptr<std::int64_t>() + g * wanted;
    std::vector<std::int64_t> chosen(first, first + wanted);
    std::sort(chosen.begin(), chosen.end());
    auto& of_head = ranges[g];
    for (const auto page : chosen) {
      const std::int64_t first_token = (hidden + page) * quest.page;
      const Range range{std::max(begin, first_token), std::min(n_tokens, first_token + quest.page)};
      if (range.length() <= 0) continue;
      tokens += range.length();
      if (!of_head.empty() && of_head.back().end == range.begin)
        of_head.back().end = range.end;
      else
        of_head.push_back(range);
    }
  }
  const std::int64_t generated = in.position + 1 - std::max(begin, n_tokens);
  read_bytes += static_cast<double>((tokens + K * generated + K * pages) * 4 * d);
  return ranges;
}

}  // namespace kvatlas::calibrate
