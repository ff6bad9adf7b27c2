// SPDX-License-Identifier: Apache-2.0
// KVzip: what the model attends to most while it repeats the prompt stays, wherever it is.
#include <algorithm>
#include <limits>
#include <utility>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include "analyzer/capture/tensors-inl.hpp"
#include "calibrate/simulate/plan_impl.hpp"
#include "calibrate/simulate/simulate.hpp"

namespace kvatlas::calibrate {
namespace {

/// Where a layer hides keys from queries: queries are at first, first + 1, ..., keys anywhere.
at::Tensor hidden_keys(const KeyWindow& window, std::int64_t first, std::int64_t queries,
                       const at::Tensor& keys) {
  std::vector<std::int64_t> begins;
  for (std::int64_t i = 0; i < queries; ++i) begins.push_back(window.first_key(first + i));
  const at::Tensor begin = at::tensor(begins, at::TensorOptions(at::kLong)).to(keys.device());
  const at::Tensor own = at::arange(first, first + queries, keys.options());
  return (keys > own.unsqueeze(1)).logical_or_(keys < begin.unsqueeze(1));
}

/// Keeps the best of the heads in these layers that no part has trimmed, `budget` tokens for each
/// in the mean.
void keep_best_of_layers(const KvZip& part, std::int64_t first, std::int64_t end, Draft& draft) {
  const std::int64_t n = draft.facts.n;
  const auto& repeated = draft.facts.repeated_of(part.repetition);
  std::vector<std::pair<std::int64_t, std::int64_t>> heads;  // layer, KV head
  std::vector<float> scores;
  for (std::int64_t layer = first; layer < end; ++layer)
    for (std::int64_t g = 0; g < draft.kv_heads(); ++g) {
      if (!draft.full(layer, g)) continue;
      heads.emplace_back(layer, g);
      const float* const row = repeated[layer].const_data_ptr<float>() + g * n;
      // The first tokens are kept, as if they scored best.
      scores.insert(scores.end(), part.repetition.sink, std::numeric_limits<float>::infinity());
      scores.insert(scores.end(), row + part.repetition.sink, row + n);
    }
  auto best = best_together(scores, n, part.budget * std::ssize(heads));
  for (std::size_t i = 0; i < heads.size(); ++i) {
    for (std::int64_t j = n; j < draft.n; ++j) best[i].push_back(j);
    draft.select(heads[i].first, heads[i].second, std::move(best[i]));
  }
}

}  // namespace

std::vector<RepeatedPart> repeated_parts(std::span<const std::int64_t> prompt,
                                         const RepeatRequest& request, std::int64_t chunk) {
  constexpr std::int64_t kNamed = 8;  // tokens that say where a part begins
  const auto n = static_cast<std::int64_t>(prompt.size());
  std::vector<RepeatedPart> parts;
  for (std::int64_t begin = request.before_text; begin < n; begin += chunk) {
    RepeatedPart& one = parts.emplace_back();
    one.part = {begin, std::min(n, begin + chunk)};
    const auto add = [&](std::span<const std::int64_t> more) {
      one.tokens.insert(one.tokens.end(), more.begin(), more.end());
    };
    const bool from_beginning = begin == request.before_text;
    const std::int64_t named = from_beginning ? 0 : std::min(kNamed, chunk);
    add(from_beginning ? request.all : request.part);
    add(prompt.subspan(begin - named, named));
    add(request.end);
    add(prompt.subspan(begin, one.part.length()));
  }
  return parts;
}

at::Tensor greatest_attention(const capture::AttentionInputs& behind, Range part,
                              std::int64_t sink) {
  constexpr std::int64_t kScoreBytes = 64 << 20;
  const at::Tensor query = capture::tensor_of(behind.query),
                   all_keys = capture::tensor_of(behind.key);
  const std::int64_t heads = all_keys.size(0), group = query.size(0) / heads, added = query.size(1),
                     n = all_keys.size(1) - added;
  const auto seen = [&](const at::Tensor& all, std::int64_t axis) {
    return at::cat({all.narrow(axis, 0, sink), all.narrow(axis, part.begin, part.length()),
                    all.narrow(axis, n, added)},
                   axis);
  };
  const at::Tensor keys = seen(all_keys, 1).transpose(1, 2);  // [KV head, head_dim, token]
  const at::Tensor places =
      seen(at::arange(n + added, at::TensorOptions(at::kLong).device(keys.device())), 0);
  const std::int64_t at_a_time =
      std::clamp<std::int64_t>(kScoreBytes / (4 * query.size(0) * keys.size(2)), 1, added);
  at::Tensor greatest =
      at::zeros({heads, part.length()}, at::TensorOptions(at::kFloat).device(keys.device()));
  for (std::int64_t row = 0; row < added; row += at_a_time) {
    const std::int64_t rows = std::min(at_a_time, added - row);
    const at::Tensor queries = query.narrow(1, row, rows).reshape({heads, group * rows, -1});
    at::Tensor scores = at::matmul(queries, keys).to(at::kFloat).mul_(behind.scale);
    if (behind.softcap > 0) scores.div_(behind.softcap).tanh_().mul_(behind.softcap);
    scores = scores.view({heads, group, rows, -1});
    scores.masked_fill_(hidden_keys(behind.window, n + row, rows, places),
                        -std::numeric_limits<float>::infinity());
    if (behind.sinks.data)
      scores = at::cat({scores, capture::tensor_of(behind.sinks)
                                    .view({heads, group, 1, 1})
                                    .expand({heads, group, rows, 1})},
                       -1);
    const at::Tensor on_part = at::softmax(scores, -1).narrow(-1, sink, part.length());
    greatest = at::maximum(greatest, on_part.amax({1, 2}));
  }
  return greatest;
}

PartPlanner planner_of(const KvZip& part) {
  PartPlanner planner;
  planner.needs.repetitions = {part.repetition};
  planner.cut = [&part](Draft& draft) {
    if (draft.facts.n <= part.budget) return;
    const std::int64_t together = part.layerwise ? 1 : draft.layers();
    for (std::int64_t layer = 0; layer < draft.layers(); layer += together)
      keep_best_of_layers(part, layer, layer + together, draft);
  };
  return planner;
}

}  // namespace kvatlas::calibrate
