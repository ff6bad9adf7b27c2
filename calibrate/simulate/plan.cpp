// SPDX-License-Identifier: Apache-2.0
#include "calibrate/simulate/plan.hpp"

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>

#include "analyzer/capture/kernel_inputs-inl.hpp"
#include "base/error.hpp"
#include "base/random.hpp"
#include "calibrate/rules/rules.hpp"
#include "calibrate/simulate/plan_impl.hpp"
#include "kernels/kernels.hpp"
#include "kernels/layer_budgets.hpp"
#include "kernels/select.hpp"

namespace kvatlas::calibrate {

using capture::float_on;
using capture::last_rows_of;
using capture::view_of;

bool decides_while_decoding(const Policy& policy) {
  return std::any_of(policy.parts.begin(), policy.parts.end(), [](const Part& part) {
    if (const auto* lazy = std::get_if<SimLayerKv>(&part))
      return !lazy->fixed && lazy->identify == SimLayerKv::Identify::decode;
    const auto* layers = std::get_if<LayerBaseline>(&part);
    return layers && !layers->layers;
  });
}

namespace {

template <class T>
void add_new(std::vector<T>& list, const T& value) {
  if (std::find(list.begin(), list.end(), value) == list.end()) list.push_back(value);
}

// Rows by which PoD compares layers (docs/evaluation.md).
constexpr std::int64_t kPodRows = 16;

/// What a prompt row's mass is of: the first set of keys, without the second where there is one.
std::vector<Proximity> counted(const SimLayerKv& part) {
  if (!part.without_own_key) return {part.keep};
  return {{part.keep.initial, part.keep.recent + 2}, {0, 1}};
}

}  // namespace

Needs needs_of(std::span<const Policy> policies) {
  Needs needs;
  const auto window = [&](const WindowBudget& select) {
    needs.rows = std::max(needs.rows, select.window);
  };
  for (const auto& policy : policies) {
    for (const auto& part : policy.parts) {
      if (const auto* lazy = std::get_if<SimLayerKv>(&part)) {
        if (lazy->fixed) continue;
        if (lazy->identify == SimLayerKv::Identify::decode)
          add_new(needs.decode_masses, lazy->keep);
        else
          for (const auto& keep : counted(*lazy))
            add_new(needs.prefill_masses, {keep, lazy->w_last});
      } else if (const auto* layers = std::get_if<LayerBaseline>(&part)) {
        if (!layers->layers) add_new(needs.decode_masses, layers->keep);
      } else if (const auto* pod = std::get_if<Pod>(&part)) {
        if (pod->lowest.empty()) needs.rows = std::max(needs.rows, kPodRows);
      } else if (const auto* dynamic = std::get_if<DynamicKv>(&part)) {
        window(dynamic->select);
      } else if (const auto* snap = std::get_if<SnapKv>(&part)) {
        window(snap->select);
      } else if (std::holds_alternative<H2o>(part)) {
        needs.columns = true;
      }
    }
  }
  return needs;
}

PromptFacts::PromptFacts(Needs needs, const model::Config& config, std::int64_t n_tokens)
    : state_(std::make_unique<State>(State{std::move(needs), config, n_tokens})) {
  State& s = *state_;
  s.columns.resize(static_cast<std::size_t>(config.n_layers));
  s.prefill_mass.resize(s.needs.prefill_masses.size());
  s.decode_mass.resize(s.needs.decode_masses.size());
}
PromptFacts::~PromptFacts() = default;
PromptFacts::PromptFacts(PromptFacts&&) noexcept = default;

namespace {

/// Adds the proximal masses of the last `rows` rows, the mean over rows: [n_heads].
void add_masses(std::vector<double>& masses, const capture::AttentionInputs& in,
                const Proximity& proximity, std::int64_t rows) {
  const std::int64_t heads = in.query.sizes[0];
  const at::Tensor mass = at::empty({1, heads, rows}, float_on(in.query));
  kernels::LastRows io = last_rows_of(in, rows);
  io.grid = {proximity};
  io.mass = view_of<float, 3>(mass);
  kernels::last_rows(io);
  const at::Tensor mean = mass[0].to(at::kDouble).mean(1).cpu();
  masses.insert(masses.end(), mean.const_data_ptr<double>(), mean.const_data_ptr<double>() + heads);
}

}  // namespace

void PromptFacts::prefill(const capture::AttentionInputs& in) {
  State& s = *state_;
  const std::int64_t heads = in.query.sizes[0];
  if (const std::int64_t rows = std::min(s.needs.rows, s.n); rows > 0) {
    if (!s.rows.defined())
      s.rows = at::empty({s.config.n_layers, heads, rows, s.n}, float_on(in.query));
    const at::Tensor probs = s.rows.select(0, in.layer);
    kernels::LastRows io = last_rows_of(in, rows);
    io.probs = view_of<float, 3>(probs);
    kernels::last_rows(io);
  }
  for (std::size_t i = 0; i < s.needs.prefill_masses.size(); ++i) {
    const auto& [proximity, w_last] = s.needs.prefill_masses[i];
    add_masses(s.prefill_mass[i], in, proximity, std::min(w_last, s.n));
  }
  if (s.needs.columns) {
    at::Tensor lse;
    kernels::AttentionMaps io = capture::maps_of(in, [&] {
      return lse = at::empty({heads, s.n}, float_on(in.query));
    });
    const at::Tensor columns = at::empty({heads, s.n}, float_on(in.query));
    io.column_sums = view_of<float, 2>(columns);
    kernels::attention_maps(io);
    const std::int64_t kv_heads = s.config.n_kv_heads;
    s.columns[in.layer] = columns.view({kv_heads, heads / kv_heads, s.n})
                              .to(at::kDouble)
                              .mean(1)
                              .to(at::kFloat)
                              .cpu();
  }
}

void PromptFacts::first_step(const capture::AttentionInputs& in) {
  State& s = *state_;
  for (std::size_t i = 0; i < s.needs.decode_masses.size(); ++i)
    add_masses(s.decode_mass[i], in, s.needs.decode_masses[i], 1);
}

namespace {

/// Keys < initial and the last `recent` of n.
HeadCut proximal_cut(const Proximity& keep, std::int64_t n, bool rolling) {
  HeadCut cut;
  const std::int64_t recent = std::max<std::int64_t>(0, n - keep.recent);
  if (keep.initial >= recent) {
    cut.ranges = {{0, n}};
  } else {
    if (keep.initial > 0) cut.ranges.push_back({0, keep.initial});
    cut.ranges.push_back({recent, n});
  }
  cut.window = keep;
  cut.rolling = rolling;
  return cut;
}

/// The `best` largest of scores [positions], ascending, then begin .. n - 1.
std::vector<std::int64_t> best_and_rest(const float* scores, std::int64_t positions,
                                        std::int64_t best, std::int64_t begin, std::int64_t n) {
  std::vector<std::int64_t> tokens;
  kernels::select_largest(scores, 1, positions, std::min(best, positions),
                          [&](std::int64_t j) { tokens.push_back(j); });
  for (std::int64_t j = begin; j < n; ++j) tokens.push_back(j);
  return tokens;
}

class Planner {
 public:
  Planner(const Policy& policy, const PromptFacts& facts, const capture::Sequence& prompt,
          const model::Config& config)
      : policy_(policy), s_(facts.state()), prompt_(prompt), config_(config) {
    plan_.delay = decides_while_decoding(policy) ? 1 : 0;
    plan_.kv_bits = policy.kv_bits;
    n_ = s_.n + plan_.delay;
    HeadCut all;
    all.ranges = {{0, n_}};
    plan_.heads.assign(static_cast<std::size_t>(config.n_layers),
                       std::vector<HeadCut>(static_cast<std::size_t>(config.n_kv_heads), all));
  }

  Plan make() {
    trimmed_.assign(plan_.heads.size(), std::vector<std::uint8_t>(plan_.heads[0].size(), 0));
    // Those that trim layers first: the others work on what stays full.
    for (const auto& part : policy_.parts) {
      if (const auto* p = std::get_if<SimLayerKv>(&part)) trim_lazy(*p);
      if (const auto* p = std::get_if<LayerBaseline>(&part)) trim_baseline(*p);
    }
    for (const auto& part : policy_.parts) {
      if (const auto* p = std::get_if<Streaming>(&part)) stream(*p);
      if (const auto* p = std::get_if<DynamicKv>(&part)) dynamickv(*p);
      if (const auto* p = std::get_if<SnapKv>(&part)) snapkv(*p);
      if (const auto* p = std::get_if<H2o>(&part)) h2o(*p);
      if (const auto* p = std::get_if<LagKv>(&part)) lagkv(*p);
      if (const auto* p = std::get_if<Pod>(&part)) pod(*p);
      if (const auto* p = std::get_if<MiniCache>(&part)) plan_.minicache = *p;
      if (const auto* p = std::get_if<Quest>(&part)) plan_.quest = *p;
    }
    if (plan_.kv_bits < 16 || plan_.minicache) copy_everything();
    return std::move(plan_);
  }

 private:
  std::int64_t layers() const { return config_.n_layers; }
  std::int64_t kv_heads() const { return config_.n_kv_heads; }
  HeadCut& head(std::int64_t layer, std::int64_t g) { return plan_.heads[layer][g]; }
  bool full(std::int64_t layer, std::int64_t g) const { return trimmed_[layer][g] == 0; }

  void trim(std::int64_t layer, std::int64_t g, const Proximity& keep) {
    head(layer, g) = proximal_cut(keep, n_, policy_.rolling);
    trimmed_[layer][g] = 1;
  }
  void trim_layer(std::int64_t layer, const Proximity& keep) {
    for (std::int64_t g = 0; g < kv_heads(); ++g) trim(layer, g, keep);
    plan_.lazy.push_back(layer);
  }

  void stream(const Streaming& part) {
    for (std::int64_t layer = 0; layer < layers(); ++layer)
      for (std::int64_t g = 0; g < kv_heads(); ++g)
        if (full(layer, g)) head(layer, g) = proximal_cut(part.keep, n_, policy_.rolling);
  }

  /// The mean over groups of `heads` neighbouring query heads: of a layer, or of a KV head.
  std::vector<double> means(const std::vector<double>& of_heads, std::int64_t heads) const {
    std::vector<double> out;
    for (auto first = of_heads.begin(); first != of_heads.end(); first += heads)
      out.push_back(std::accumulate(first, first + heads, 0.0) / static_cast<double>(heads));
    return out;
  }

  const std::vector<double>& decode_mass(const Proximity& keep) const {
    const auto& known = s_.needs.decode_masses;
    return s_.decode_mass[std::find(known.begin(), known.end(), keep) - known.begin()];
  }

  std::vector<double> prefill_mass(const SimLayerKv& part) const {
    const auto& known = s_.needs.prefill_masses;
    const auto of = [&](const Proximity& keep) {
      const auto at = std::find(known.begin(), known.end(), std::pair(keep, part.w_last));
      return s_.prefill_mass[at - known.begin()];
    };
    const auto keeps = counted(part);
    auto mass = of(keeps[0]);
    if (keeps.size() > 1) {
      const auto own = of(keeps[1]);
      std::transform(mass.begin(), mass.end(), own.begin(), mass.begin(), std::minus<>());
    }
    return mass;
  }

  void trim_lazy(const SimLayerKv& part) {
    if (part.fixed) return trim_fixed(part);
    const std::vector<double> mass =
        part.identify == SimLayerKv::Identify::decode ? decode_mass(part.keep) : prefill_mass(part);
    if (part.per_head) {
      plan_.mass = means(mass, config_.n_heads / kv_heads());
      for (std::int64_t layer = 0; layer < layers(); ++layer)
        for (std::int64_t g = 0; g < kv_heads(); ++g)
          if (is_lazy(plan_.mass[layer * kv_heads() + g], part.threshold))
            trim(layer, g, part.keep);
      return;
    }
    plan_.mass = means(mass, config_.n_heads);
    if (part.without_own_key && n_ <= part.keep.initial + part.keep.recent + 2) return;
    const LayerFlags lazy = lazy_layers(plan_.mass, part.threshold);
    trim_layers(part.opposite ? opposite_layers(plan_.mass, lazy) : lazy, part.keep);
  }

  void trim_layers(const LayerFlags& layers_to_trim, const Proximity& keep) {
    for (std::int64_t layer = 0; layer < layers(); ++layer)
      if (layers_to_trim[layer] != 0) trim_layer(layer, keep);
  }

  void trim_fixed(const SimLayerKv& part) {
    const LazyHeads& fixed = *part.fixed;
    if (fixed.size() != plan_.heads.size())
      fail(ErrorCode::usage, policy_.name, ": the policy is for ", fixed.size(),
           " layers, the model has ", layers());
    for (std::int64_t layer = 0; layer < layers(); ++layer) {
      const auto& row = fixed[layer];
      if (row.size() == 1) {
        if (row[0] != 0) trim_layer(layer, part.keep);
        continue;
      }
      if (static_cast<std::int64_t>(row.size()) != kv_heads())
        fail(ErrorCode::usage, policy_.name, ": layer ", layer, " has ", row.size(),
             " KV heads in the policy and ", kv_heads(), " in the model");
      for (std::int64_t g = 0; g < kv_heads(); ++g)
        if (row[g] != 0) trim(layer, g, part.keep);
    }
  }

  void trim_baseline(const LayerBaseline& part) {
    std::int64_t count = 0;
    if (part.layers) {
      count = *part.layers;
    } else {
      plan_.mass = means(decode_mass(part.keep), config_.n_heads);
      count = count_lazy(lazy_layers(plan_.mass, part.threshold));
    }
    std::int64_t begin = 0, end = layers();
    if (part.choose == LayerBaseline::Choose::random) {
      if (part.from == LayerBaseline::From::lower) end = layers() / 2;
      if (part.from == LayerBaseline::From::upper) begin = layers() / 2;
    }
    std::vector<std::int64_t> order(static_cast<std::size_t>(end - begin));
    std::iota(order.begin(), order.end(), begin);
    if (part.choose == LayerBaseline::Choose::random)
      Random(part.seed, "random layers").shuffle(order);
    else
      std::reverse(order.begin(), order.end());
    order.resize(std::min(order.size(), static_cast<std::size_t>(count)));
    std::sort(order.begin(), order.end());
    for (const auto layer : order) trim_layer(layer, part.keep);
  }

  /// S of all layers for groups of heads: [layers, groups, n - window], on the host.
  at::Tensor window_scores(const WindowBudget& select, std::int64_t groups) const {
    const std::int64_t positions = s_.n - select.window, held = s_.rows.size(2);
    const at::Tensor scores = at::empty({layers(), groups, positions}, s_.rows.options());
    for (std::int64_t layer = 0; layer < layers(); ++layer) {
      const at::Tensor rows =
          s_.rows.select(0, layer).narrow(1, held - select.window, select.window);
      const at::Tensor to = scores.select(0, layer);
      kernels::window_scores({AnyView<3>(view_of<const float, 3>(rows)), select.window,
                              select.kernel, select.pooling, view_of<float, 2>(to)});
    }
    return scores.cpu();
  }

  /// Each KV head's best tokens by window scores, as many as the layer's budget, and the window.
  void keep_best(const WindowBudget& select, const std::vector<std::int64_t>& budgets) {
    const at::Tensor scores = window_scores(select, kv_heads());
    const std::int64_t positions = scores.size(2);
    plan_.budgets = budgets;
    for (std::int64_t layer = 0; layer < layers(); ++layer)
      for (std::int64_t g = 0; g < kv_heads(); ++g)
        if (full(layer, g))
          select_tokens(head(layer, g),
                        best_and_rest(scores[layer][g].const_data_ptr<float>(), positions,
                                      budgets[layer], s_.n - select.window, n_));
  }

  static void select_tokens(HeadCut& cut, std::vector<std::int64_t> tokens) {
    cut.ranges.clear();
    cut.tokens = std::move(tokens);
  }

  void require_budget(const WindowBudget& select) const {
    if (select.budget <= select.window)
      fail(ErrorCode::usage, policy_.name, ": a budget of ", select.budget,
           " tokens leaves none beside the window of ", select.window);
  }

  void dynamickv(const DynamicKv& part) {
    require_budget(part.select);
    const std::int64_t positions = s_.n - part.select.window, H = config_.n_heads;
    if (positions < 1) return;
    if (part.fixed) {
      if (part.fixed->size() != plan_.heads.size())
        fail(ErrorCode::usage, policy_.name, ": the policy has budgets for ", part.fixed->size(),
             " layers, the model has ", layers());
      auto budgets = *part.fixed;
      for (auto& budget : budgets) budget = std::min(budget, positions);
      return keep_best(part.select, budgets);
    }
    const std::int64_t base = part.select.budget - part.select.window;
    const at::Tensor scores = window_scores(part.select, H);
    std::vector<std::int64_t> counts(plan_.heads.size());
    kernels::top_counts({view_of<const float, 3>(scores),
                         {std::min(base, positions) * H * layers()},
                         {counts.data(), {1, layers()}}});
    keep_best(part.select, kernels::layer_budgets(counts, H, base, positions, part.r_max).exact);
  }

  void snapkv(const SnapKv& part) {
    require_budget(part.select);
    if (s_.n <= part.select.window) return;
    const std::int64_t mean = part.select.budget - part.select.window;
    keep_best(part.select, part.pyramid ? pyramid_budgets(mean, layers())
                                        : std::vector<std::int64_t>(plan_.heads.size(), mean));
  }

  void h2o(const H2o& part) {
    const std::int64_t best = part.budget / 2;
    const std::int64_t recent = std::max<std::int64_t>(0, n_ - (part.budget - best));
    for (std::int64_t layer = 0; layer < layers(); ++layer)
      for (std::int64_t g = 0; g < kv_heads(); ++g)
        if (full(layer, g))
          select_tokens(head(layer, g), best_and_rest(s_.columns[layer][g].const_data_ptr<float>(),
                                                      std::min(recent, s_.n), best, recent, n_));
  }

  void lagkv(const LagKv& part) {
    plan_.lag = part;
    plan_.lag_heads.assign(plan_.heads.size(), std::vector<std::uint8_t>(plan_.heads[0].size(), 0));
    const std::int64_t keep = part.keep();
    const std::int64_t partitions = kernels::lag_cut_partitions(n_, part.sink, part.lag);
    for (std::int64_t layer = 0; layer < layers(); ++layer) {
      // L2 does not cut the first two layers.
      if (part.variant == LagVariant::l2 && layer < 2) continue;
      auto& cut = plan_.lag_heads[layer];
      for (std::int64_t g = 0; g < kv_heads(); ++g) cut[g] = full(layer, g) ? 1 : 0;
      if (partitions == 0 || std::find(cut.begin(), cut.end(), 1) == cut.end()) continue;
      const auto cache = prompt_.cache(layer);
      kernels::LagScores io;
      io.keys = cache.key;
      io.values = cache.value;
      io.keys.sizes[1] = io.values.sizes[1] = n_;
      io.sink = part.sink;
      io.variant = part.variant;
      io.lags = {part.lag};
      const auto on = float_on(cache.key);
      const at::Tensor scores = at::empty({kv_heads(), partitions * part.lag}, on);
      io.scores = {view_of<float, 2>(scores)};
      kernels::lag_scores(io);
      const std::int64_t length = kernels::lag_length(n_, part.sink, part.lag, keep);
      const at::Tensor positions = at::empty({kv_heads(), length}, on.dtype(at::kLong));
      kernels::lag_kept({view_of<const float, 2>(scores), n_, part.sink, part.lag, keep,
                         view_of<std::int64_t, 2>(positions)});
      const at::Tensor kept = positions.cpu();
      for (std::int64_t g = 0; g < kv_heads(); ++g) {
        if (!full(layer, g)) continue;
        const auto* first = kept.const_data_ptr<std::int64_t>() + g * length;
        select_tokens(head(layer, g), {first, first + length});
      }
    }
  }

  void pod(const Pod& part) {
    plan_.pod = part;
    if (plan_.pod->lowest.empty()) plan_.pod->lowest = own_blocks(part);
    const auto& lowest = plan_.pod->lowest;
    if (static_cast<std::int64_t>(lowest.size()) != config_.n_heads ||
        lowest.front().size() != plan_.heads.size())
      fail(ErrorCode::usage, policy_.name, ": the blocks are for ", lowest.size(), " heads and ",
           lowest.front().size(), " layers, the model has ", config_.n_heads, " and ", layers());
  }

  /// Blocks by the divergence of this prompt's last rows.
  std::vector<std::vector<std::int64_t>> own_blocks(const Pod& part) const {
    const std::int64_t rows = std::min(kPodRows, s_.n), H = config_.n_heads, L = layers();
    const at::Tensor last = s_.rows.narrow(2, s_.rows.size(2) - rows, rows);
    const at::Tensor mean = at::empty({H, L, L}, s_.rows.options());
    kernels::js_divergence(
        {AnyView<4>(view_of<const float, 4>(last)), view_of<float, 3>(mean), {}});
    const at::Tensor similar = (1.0 - mean.to(at::kDouble)).cpu().contiguous();
    const auto* values = similar.const_data_ptr<double>();
    return pod_blocks({H, L, {values, values + similar.numel()}}, kv_heads(), part.per_query_head,
                      part.delta);
  }

  /// What is stored changed is stored apart.
  void copy_everything() {
    for (auto& layer : plan_.heads)
      for (auto& cut : layer) {
        for (const auto& range : cut.ranges)
          for (std::int64_t j = range.begin; j < range.end; ++j) cut.tokens.push_back(j);
        cut.ranges.clear();
      }
  }

  const Policy& policy_;
  const PromptFacts::State& s_;
  const capture::Sequence& prompt_;
  const model::Config& config_;
  std::int64_t n_ = 0;  // tokens of the prompt, and of the first step if it decides
  Plan plan_;
  LazyHeads trimmed_;
};

}  // namespace

Plan make_plan(const Policy& policy, const PromptFacts& facts, const capture::Sequence& prompt,
               const model::Config& config) {
  return Planner(policy, facts, prompt, config).make();
}

}  // namespace kvatlas::calibrate
