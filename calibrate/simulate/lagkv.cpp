// SPDX-License-Identifier: Apache-2.0
// LagKV: a partition of tokens is cut as soon as the next one is complete, first in the prompt and
// then while decoding.
#include <algorithm>
#include <numeric>

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

#include "analyzer/capture/kernel_inputs-inl.hpp"
#include "analyzer/capture/selections-inl.hpp"
#include "calibrate/simulate/continuations_impl.hpp"
#include "calibrate/simulate/plan_impl.hpp"

namespace kvatlas::calibrate {

using capture::any_view;
using capture::tensor_of;

namespace {

/// The tokens that stay of a prompt, as scored by its keys and values: for each KV head.
std::vector<std::vector<std::int64_t>> kept_of_prompt(const LagKv& part, const Draft& draft,
                                                      std::int64_t layer) {
  const std::int64_t keep = part.keep();
  const std::int64_t length = kernels::lag_length(draft.n, part.sink, part.lag, keep);
  const auto cache = draft.prompt.cache(layer);
  const at::Tensor positions =
      at::empty({draft.kv_heads(), length}, capture::float_on(cache.key).dtype(at::kLong));
  capture::cut_by_lag(cache.key, cache.value, draft.n, part.sink, part.variant,
                      {{part.lag, keep, positions}});
  const at::Tensor kept = positions.cpu();
  std::vector<std::vector<std::int64_t>> out;
  for (std::int64_t g = 0; g < draft.kv_heads(); ++g) {
    const auto* first = kept.const_data_ptr<std::int64_t>() + g * length;
    out.emplace_back(first, first + length);
  }
  return out;
}

void cut_prompt(const LagKv& part, Draft& draft) {
  draft.plan.lag = part;
  draft.plan.cut_heads = draft.full_heads(kernels::first_layer_cut(part.variant));
  if (kernels::lag_cut_partitions(draft.n, part.sink, part.lag) == 0) return;
  for (std::int64_t layer = 0; layer < draft.layers(); ++layer) {
    const auto& cut = draft.plan.cut_heads[layer];
    if (!any_of(cut)) continue;
    auto kept = kept_of_prompt(part, draft, layer);
    for (std::int64_t g = 0; g < draft.kv_heads(); ++g)
      if (cut[g] != 0) draft.select(layer, g, std::move(kept[g]));
  }
}

}  // namespace

PartPlanner planner_of(const LagKv& part) {
  PartPlanner planner;
  planner.cut = [&part](Draft& draft) { cut_prompt(part, draft); };
  return planner;
}

/// All rows that a head holds, in the order of their positions: keys of layer m, values of layer l.
Continuations::State::Rows Continuations::State::gather(const Stream& stream, std::int64_t l,
                                                        std::int64_t m, std::int64_t g) const {
  const at::Tensor of_prompt_keys = tensor_of(prompt.cache(m).key)[g],
                   of_prompt_values = tensor_of(prompt.cache(l).value)[g];
  std::vector<at::Tensor> keys, values;
  Rows rows;
  for (const auto& range : stream.head(m, g).ranges) {
    keys.push_back(of_prompt_keys.narrow(0, range.begin, range.length()));
    values.push_back(of_prompt_values.narrow(0, range.begin, range.length()));
    for (std::int64_t j = range.begin; j < range.end; ++j) rows.positions.push_back(j);
  }
  if (const CopiedRows copied = stream.copied(l, m, g); copied.length() > 0) {
    keys.push_back(copies.keys(l).narrow(0, copied.start, copied.length()));
    values.push_back(copies.values(l).narrow(0, copied.start, copied.length()));
    rows.positions.insert(rows.positions.end(), copied.tokens->begin(), copied.tokens->end());
  }
  const std::int64_t from = stream.head(m, g).generated_from, number = &stream - streams.data();
  const auto generated = [&](const std::vector<at::Tensor>& of, std::int64_t layer) {
    return of[layer][number][g].narrow(0, from, stream.taken - from);
  };
  keys.push_back(generated(generated_key, m));
  values.push_back(generated(generated_value, l));
  for (std::int64_t i = from; i < stream.taken; ++i) rows.positions.push_back(stream.first + i);
  rows.keys = at::cat(keys);
  rows.values = at::cat(values);
  return rows;
}

/// Of a head's rows, those that stay when the last but one partition is cut.
std::vector<std::int64_t> Continuations::State::rows_kept(const Plan& plan,
                                                          const Rows& rows) const {
  const std::int64_t lag = plan.lag->lag, keep = plan.lag->keep();
  const std::int64_t before = rows.keys.size(0) - 2 * lag;
  const at::Tensor kept = at::empty({1, keep + lag}, options.dtype(at::kLong));
  capture::cut_by_lag(any_view<3>(rows.keys.narrow(0, before, 2 * lag).unsqueeze(0)),
                      any_view<3>(rows.values.narrow(0, before, 2 * lag).unsqueeze(0)), 2 * lag, 0,
                      plan.lag->variant, {{lag, keep, kept}});
  const at::Tensor on_host = kept.cpu();
  std::vector<std::int64_t> out(static_cast<std::size_t>(before));
  std::iota(out.begin(), out.end(), 0);
  for (std::int64_t i = 0; i < keep + lag; ++i)
    out.push_back(before + on_host.const_data_ptr<std::int64_t>()[i]);
  return out;
}

CopiedRows Continuations::State::copy_rows(std::int64_t l, const Rows& rows,
                                           const std::vector<std::int64_t>& kept) {
  CopiedRows copied =
      copies
          .add(l, {any_view<3>(rows.keys.unsqueeze(0)), any_view<3>(rows.values.unsqueeze(0))},
               {kept})
          .front();
  std::vector<std::int64_t> tokens;
  for (const auto row : kept) tokens.push_back(rows.positions[row]);
  copied.tokens = std::make_shared<const std::vector<std::int64_t>>(std::move(tokens));
  return copied;
}

void Continuations::State::cut_further(Stream& stream, std::int64_t tokens) {
  const Plan& plan = *stream.plan;
  if (!plan.lag) return;
  const std::int64_t sink = plan.lag->sink, lag = plan.lag->lag;
  if (tokens < sink + 2 * lag || (tokens - sink) % lag != 0) return;
  for (std::int64_t m = 0; m < config.n_layers; ++m)
    for (std::int64_t g = 0; g < K(); ++g) {
      if (plan.cut_heads[m][g] == 0) continue;
      const Rows own = gather(stream, m, m, g);
      const std::vector<std::int64_t> kept = rows_kept(plan, own);
      // Layers above that share these keys keep their values of the same tokens.
      if (plan.pod)
        for (std::int64_t l = m + 1; l < config.n_layers; ++l)
          if (stream.shares(l, m, g, group()))
            stream.borrowed[{l, m, g}] = copy_rows(l, gather(stream, l, m, g), kept);
      Head& head = stream.layer(m).heads[g];
      head.copied = copy_rows(m, own, kept);
      head.ranges.clear();
      head.generated_from = stream.taken;
    }
}

}  // namespace kvatlas::calibrate
