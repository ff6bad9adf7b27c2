// SPDX-License-Identifier: Apache-2.0
#include "calibrate/simulate/plan.hpp"

#include <algorithm>
#include <numeric>

#include "base/error.hpp"
#include "calibrate/simulate/plan_impl.hpp"

namespace kvatlas::calibrate {
namespace {

PartPlanner planner_for(const Part& part) {
  return std::visit([](const auto& one) { return planner_of(one); }, part);
}

template <class T>
void add_new(std::vector<T>& list, const std::vector<T>& more) {
  for (const auto& value : more)
    if (std::find(list.begin(), list.end(), value) == list.end()) list.push_back(value);
}

}  // namespace

Needs needs_of(std::span<const Policy> policies) {
  Needs all;
  for (const auto& policy : policies)
    for (const auto& part : policy.parts) {
      const Needs needs = planner_for(part).needs;
      all.rows = std::max(all.rows, needs.rows);
      all.columns |= needs.columns;
      all.value_outputs |= needs.value_outputs;
      all.mean_queries |= needs.mean_queries;
      all.last_queries = std::max(all.last_queries, needs.last_queries);
      add_new(all.queries_without_first, needs.queries_without_first);
      add_new(all.repetitions, needs.repetitions);
      add_new(all.prefill_masses, needs.prefill_masses);
      add_new(all.decode_masses, needs.decode_masses);
    }
  return all;
}

bool decides_while_decoding(const Policy& policy) {
  return !needs_of({&policy, 1}).decode_masses.empty();
}

LayerWindows prefill_windows(const Policy& policy, const model::Config& config) {
  LayerWindows windows(static_cast<std::size_t>(config.n_layers));
  for (const auto& part : policy.parts) {
    const PartPlanner planner = planner_for(part);
    if (!planner.window_of)
      fail(ErrorCode::usage, policy.name,
           ": only windows of whole layers that are known beforehand can mask the prefill");
    for (std::int64_t layer = 0; layer < config.n_layers; ++layer)
      if (const auto window = planner.window_of(layer)) windows[layer] = window;
  }
  return windows;
}

LazyHeads Draft::full_heads(std::int64_t from_layer) const {
  LazyHeads heads(trimmed.size(), std::vector<std::uint8_t>(static_cast<std::size_t>(kv_heads())));
  for_full_heads([&](std::int64_t layer, std::int64_t g) {
    if (layer >= from_layer) heads[layer][g] = 1;
  });
  return heads;
}

bool any_of(const std::vector<std::uint8_t>& heads) {
  return std::find(heads.begin(), heads.end(), 1) != heads.end();
}

std::vector<std::vector<HeadCut>> keep_all(const model::Config& config, std::int64_t n) {
  HeadCut all;
  all.ranges = {{0, n}};
  return {static_cast<std::size_t>(config.n_layers),
          std::vector<HeadCut>(static_cast<std::size_t>(config.n_kv_heads), all)};
}

std::int64_t HeadCut::copied() const {
  auto count = static_cast<std::int64_t>(tokens.size());
  for (const auto& of_head : by_query_head) count += static_cast<std::int64_t>(of_head.size());
  return count;
}

void Draft::keep_window(std::int64_t layer, std::int64_t g, const Proximity& keep) {
  HeadCut cut;
  const std::int64_t recent = std::max<std::int64_t>(0, n - keep.recent);
  if (keep.initial >= recent) {
    cut.ranges = {{0, n}};
  } else {
    if (keep.initial > 0) cut.ranges.push_back({0, keep.initial});
    cut.ranges.push_back({recent, n});
  }
  cut.window = keep;
  cut.rolling = policy.rolling;
  plan.heads[layer][g] = cut;
}

void Draft::trim(std::int64_t layer, std::int64_t g, const Proximity& keep) {
  keep_window(layer, g, keep);
  trimmed[layer][g] = 1;
}

void Draft::trim_layer(std::int64_t layer, const Proximity& keep) {
  for (std::int64_t g = 0; g < kv_heads(); ++g) trim(layer, g, keep);
  plan.lazy.push_back(layer);
}

void Draft::select(std::int64_t layer, std::int64_t g, std::vector<std::int64_t> tokens) {
  plan.heads[layer][g].ranges.clear();
  plan.heads[layer][g].tokens = std::move(tokens);
}

void Draft::select_by_query_head(std::int64_t layer, std::int64_t g,
                                 std::vector<std::vector<std::int64_t>> tokens) {
  plan.heads[layer][g].ranges.clear();
  plan.heads[layer][g].by_query_head = std::move(tokens);
}

void Draft::select_in_layer(std::int64_t layer,
                            const std::vector<std::vector<std::int64_t>>& tokens) {
  const std::int64_t group = std::ssize(tokens) / kv_heads();
  for (std::int64_t g = 0; g < kv_heads(); ++g) {
    if (!full(layer, g)) continue;
    if (group > 1)
      select_by_query_head(layer, g,
                           {tokens.begin() + g * group, tokens.begin() + (g + 1) * group});
    else
      select(layer, g, tokens[group == 0 ? 0 : g]);
  }
}

void Draft::for_full_heads(const std::function<void(std::int64_t, std::int64_t)>& change) const {
  for (std::int64_t layer = 0; layer < layers(); ++layer)
    for (std::int64_t g = 0; g < kv_heads(); ++g)
      if (full(layer, g)) change(layer, g);
}

void Draft::copy_layer(std::int64_t layer) {
  for (auto& cut : plan.heads[layer]) {
    for (const auto& range : cut.ranges)
      for (std::int64_t j = range.begin; j < range.end; ++j) cut.tokens.push_back(j);
    cut.ranges.clear();
  }
}

/// It cuts nothing: make_plan() asks the policy for the formats.
PartPlanner planner_of(const Precision& part) {
  const auto check = [&part](const Draft& draft) {
    if (part.fixed && std::ssize(*part.fixed) != draft.layers())
      fail(ErrorCode::usage, draft.policy.name, ": the formats are for ", part.fixed->size(),
           " layers, the model has ", draft.layers());
    if (part.scales && std::ssize(part.scales->keys) != draft.layers())
      fail(ErrorCode::usage, draft.policy.name, ": the scales are for ", part.scales->keys.size(),
           " layers, the model has ", draft.layers());
    for (const KvFormats& layer : layer_formats(part, draft.layers()))
      for (const KvFormat format : {layer.keys, layer.values})
        if (const auto lack = lack_of_format(format, draft.config.head_dim); !lack.empty())
          fail(ErrorCode::usage, draft.policy.name, ": ", lack);
  };
  return {.cut = check, .window_of = [](std::int64_t) { return std::nullopt; }};
}

namespace {

bool has_local_rope(const model::Config& config, std::int64_t layer) {
  return config.window[layer] > 0 && config.local_rope;
}

std::int64_t turning_channels(const model::Config& config, std::int64_t layer) {
  return has_local_rope(config, layer) ? config.local_rotary_dim : config.rotary_dim;
}

}  // namespace

model::RopeFrequencies rope_of_layer(const model::Config& config, std::int64_t layer,
                                     std::int64_t tokens) {
  return model::rope_frequencies(has_local_rope(config, layer) ? *config.local_rope : config.rope,
                                 turning_channels(config, layer), config.context_length, tokens);
}

std::int64_t turning_pairs(const model::Config& config, std::int64_t layer) {
  return config.has_rope(layer) ? turning_channels(config, layer) / 2 : 0;
}

void require_turning_queries(const Draft& draft) {
  if (draft.config.norms_after_rope || draft.config.rotated_norms)
    fail(ErrorCode::usage, draft.policy.name,
         ": the model norms queries after RoPE, so that their mean says nothing of their place");
}

std::vector<double> group_means(const std::vector<double>& of_heads, std::int64_t heads) {
  std::vector<double> out;
  for (auto first = of_heads.begin(); first != of_heads.end(); first += heads)
    out.push_back(std::accumulate(first, first + heads, 0.0) / static_cast<double>(heads));
  return out;
}

Plan make_plan(const Policy& policy, const PromptFacts& facts, const capture::Sequence& prompt,
               const model::Config& config) {
  Draft draft{policy, facts.state(), prompt, config};
  draft.plan.delay = decides_while_decoding(policy) ? 1 : 0;
  draft.plan.kv_residual = policy.kv_residual;
  draft.n = facts.state().n + draft.plan.delay;
  draft.plan.heads = keep_all(config, draft.n);
  draft.trimmed.assign(static_cast<std::size_t>(config.n_layers),
                       std::vector<std::uint8_t>(static_cast<std::size_t>(config.n_kv_heads), 0));
  for (const auto& part : policy.parts) planner_for(part).cut(draft);
  const std::vector<KvFormats> formats = formats_of(policy, config.n_layers);
  if (const auto* precision = part_of_type<Precision>(policy)) {
    draft.plan.fp8_queries = precision->fp8_queries;
    draft.plan.scales = precision->scales;
  }
  const auto plain = [](const KvFormats& layer) { return layer.plain(); };
  if (!std::all_of(formats.begin(), formats.end(), plain)) draft.plan.formats = formats;
  // Layers that share keys are read together: either all from copies or none.
  for (std::int64_t layer = 0; layer < config.n_layers && !draft.plan.formats.empty(); ++layer)
    if (draft.plan.pod || !plain(formats[layer])) draft.copy_layer(layer);
  return std::move(draft.plan);
}

}  // namespace kvatlas::calibrate
