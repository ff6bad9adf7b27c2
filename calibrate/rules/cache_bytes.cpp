// SPDX-License-Identifier: Apache-2.0
#include "calibrate/rules/cache_bytes.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <tuple>

#include "base/error.hpp"
#include "calibrate/policy/method.hpp"
#include "kernels/lag_scores.hpp"

namespace kvatlas::calibrate {
namespace {

/// Tokens of the prompt and generated ones that a KV head keeps.
struct Held {
  double prompt = 0, generated = 0;
  double stored = 1;  // how many times, for query heads that keep tokens of their own
  double tokens() const { return prompt + generated; }
};

/// Layer by layer, what the parts of a policy leave.
class Accounting {
 public:
  Accounting(const Policy& policy, const CacheLoad& load)
      : policy_(policy), load_(load), shape_(load.shape) {
    if (load.runtime && load.runtime->keeps_windows_whole) shape_.windows.clear();
    const auto layers = static_cast<std::size_t>(shape().layers);
    const auto heads = static_cast<std::size_t>(shape().kv_heads);
    const Held all{static_cast<double>(load.prompt), static_cast<double>(load.new_tokens)};
    held_.assign(layers, std::vector<Held>(heads, all));
    kinds_.assign(layers, {});
    trimmed_.assign(layers, std::vector<double>(heads, 0));
    if (const auto* part = part_of_type<Precision>(policy); part && part->fixed)
      require_layers(part->fixed->size());
    formats_ = formats_of(policy, shape().layers);
  }

  CacheBytes count() {
    const auto all = held_;
    for (const auto& part : policy_.parts) std::visit(*this, part);
    if (load_.before_cut) held_ = all;
    bound_by_windows();
    if (load_.before_cut) return in_bytes();
    for (const auto& part : policy_.parts)
      if (const auto* keep = kept_window(part)) blend_windows(*keep);
    return in_bytes();
  }

  void operator()(const Streaming&) { trim_all(); }
  void operator()(const SimLayerKv& part) {
    if (!part.fixed) return trim_by_rates(part.per_head);
    require_layers(part.fixed->size());
    for (std::size_t l = 0; l < trimmed_.size(); ++l) {
      const auto& row = (*part.fixed)[l];
      for (std::size_t g = 0; g < trimmed_[l].size(); ++g)
        trimmed_[l][g] = row.at(row.size() == 1 ? 0 : g);
    }
  }
  void operator()(const LayerBaseline& part) {
    if (part.choose != LayerBaseline::Choose::pyramid || !part.layers)
      return trim_by_rates(false);  // which layers, or how many, the input or the seed says
    if (part.shape == LayerBaseline::Shape::linear) {
      windows_ = shrinking_windows(shape().layers, *part.layers, load_.prompt, part.keep);
      for (std::size_t l = 0; l < trimmed_.size(); ++l)
        if (windows_[l].initial + windows_[l].recent < load_.prompt)
          std::fill(trimmed_[l].begin(), trimmed_[l].end(), 1);
      return;
    }
    const auto first =
        trimmed_.size() - std::min(trimmed_.size(), static_cast<std::size_t>(*part.layers));
    for (std::size_t l = first; l < trimmed_.size(); ++l)
      std::fill(trimmed_[l].begin(), trimmed_[l].end(), 1);
  }
  void operator()(const Pod& part) {
    pod_ = &part;
    if (part.lowest.empty()) by_input_ = true;
  }
  void operator()(const DynamicKv& part) {
    if (part.fixed) {
      require_layers(part.fixed->size());
      return select(*part.fixed, part.select);
    }
    by_input_ = true;  // the layers' shares; their sum is known
    std::vector<std::size_t> layers(held_.size());
    std::iota(layers.begin(), layers.end(), std::size_t{0});
    select(shared_budgets(std::move(layers), part.select.budget - part.select.window,
                          part.select.window),
           part.select);
  }
  void operator()(const HeadKv& part) {
    if (part.fixed) {
      require_layers(part.fixed->size());
      return select(*part.fixed, part.select);
    }
    by_input_ = true;  // the shares of layers and heads; their sum is known
    select(shared_budgets(layers_with_full_heads(), part.select.budget - part.select.window,
                          part.select.window),
           part.select);
  }
  void operator()(const SnapKv& part) {
    const auto mean = part.select.budget - part.select.window;
    select(part.pyramid ? pyramid_budgets(mean, shape().layers) : alike(mean), part.select);
  }
  void operator()(const AdaKv& part) {
    by_input_ = true;  // the heads' shares; their sum is known
    select(alike(part.select.budget - part.select.window), part.select);
  }
  void operator()(const ChunkKv& part) {
    by_input_ = by_input_ || !part.keeps_last(load_.prompt);
    select_tokens(part.kept(load_.prompt));
  }
  void operator()(const CriticalKv& part) { select_tokens(part.select.budget); }
  void operator()(const KvZip& part) {
    by_input_ = true;  // the shares of layers and heads; their sum is known
    if (part.layerwise) return select_tokens(part.budget);
    select(shared_budgets(layers_with_full_heads(), part.budget, 0), {.window = 0});
  }
  void operator()(const LagKv& part) {
    for (auto l = static_cast<std::size_t>(kernels::first_layer_cut(part.variant));
         l < held_.size(); ++l) {
      kinds_[l] = {part.lag};
      const std::int64_t kept = lag_kept(part, held_at(l));
      // What is generated is cut last.
      const std::int64_t generated = std::min(load_.new_tokens, kept);
      for (auto& head : held_[l])
        head = {static_cast<double>(kept - generated), static_cast<double>(generated)};
    }
  }
  void operator()(const Decoding& part) {
    // How many of the last tokens, which are not in codes yet, are kept depends on the input.
    by_input_ = by_input_ || policy_.kv_residual > 0 || (load_.new_tokens > 0 && coded_in_groups());
    const std::int64_t kept = decoding_kept(part);
    const std::int64_t generated = std::min(load_.new_tokens, kept);
    for (auto& row : held_)
      for (auto& head : row)
        head = {static_cast<double>(kept - generated), static_cast<double>(generated)};
  }
  void operator()(const MiniCache& part) {
    merged_ = &part;
    // How many of the merged tokens are out of a window's reach, or not in codes yet.
    by_input_ = by_input_ || policy_.kv_residual > 0;
    for (std::size_t l = 0; l < held_.size(); ++l)
      by_input_ = by_input_ || held_at(l) < all_tokens();
  }
  void operator()(const ShareValues&) { by_input_ = true; }  // no layer's values are alike for sure
  void operator()(const Quest&) {}
  void operator()(const VerticalSlash&) {}
  void operator()(const Precision&) {}
  /// Selections that keep their budget in every head.
  template <class Selection>
  void operator()(const Selection& part) {
    select_tokens(part.budget);
  }

 private:
  const CacheShape& shape() const { return shape_; }
  std::int64_t all_tokens() const { return load_.prompt + load_.new_tokens; }
  std::int64_t held_at(std::size_t layer) const {
    return shape().held(static_cast<std::int64_t>(layer), all_tokens());
  }

  /// How many of the last `seen` tokens LagKV keeps, at most: of a partition that is seen in part,
  /// those that it keeps may all be seen.
  std::int64_t lag_kept(const LagKv& part, std::int64_t seen) const {
    const std::int64_t seen_by_cuts = all_tokens() - (frees_late() ? kTokensLate : 0);
    const std::int64_t of_partitions =
        kernels::lag_cut_partitions(seen_by_cuts, part.sink, part.lag) * part.lag;
    const std::int64_t uncut = all_tokens() - part.sink - of_partitions;
    if (seen <= uncut) return seen;
    const std::int64_t cut = std::min(seen - uncut, of_partitions), of_sink = seen - uncut - cut;
    return uncut + cut / part.lag * part.keep() + std::min(cut % part.lag, part.keep()) + of_sink;
  }

  bool coded_in_groups() const {
    for (const KvFormats& formats : formats_) {
      for (const KvFormat format : {formats.keys, formats.values})
        if (format != KvFormat::f16 && !facts_of(format).by_token) return true;
    }
    return false;
  }

  /// What a budget leaves, as it is while the last of the tokens is read.
  std::int64_t decoding_kept(const Decoding& part) const {
    const std::int64_t at_first =
        part.whole_prompt ? load_.prompt : std::min(load_.prompt, part.budget);
    if (load_.new_tokens == 0) return at_first;
    const std::int64_t choices = (load_.new_tokens - 1) / part.every;
    const std::int64_t at_last =
        choices == 0 ? at_first : std::min(part.budget, at_first + choices * part.every);
    return at_last + load_.new_tokens - choices * part.every;
  }

  void require_layers(std::size_t count) const {
    if (count != held_.size())
      fail(ErrorCode::usage, policy_.name, ": the policy is for ", count, " layers, the model has ",
           held_.size());
  }

  void trim_all() {
    for (auto& row : trimmed_) std::fill(row.begin(), row.end(), 1);
  }
  void trim_by_rates(bool per_head) {
    by_input_ = true;
    if (!load_.lazy_rates) return;
    require_layers(load_.lazy_rates->size());
    for (std::size_t l = 0; l < trimmed_.size(); ++l) {
      const auto& row = (*load_.lazy_rates)[l];
      const double mean =
          std::accumulate(row.begin(), row.end(), 0.0) / static_cast<double>(row.size());
      for (std::size_t g = 0; g < trimmed_[l].size(); ++g)
        trimmed_[l][g] = per_head && row.size() == trimmed_[l].size() ? row[g] : mean;
    }
  }

  std::vector<std::size_t> layers_with_full_heads() const {
    std::vector<std::size_t> layers;
    for (std::size_t l = 0; l < trimmed_.size(); ++l)
      if (std::any_of(trimmed_[l].begin(), trimmed_[l].end(),
                      [](double share) { return share < 1; }))
        layers.push_back(l);
    return layers;
  }

  /// `budgets` are of layers.
  void select(const std::vector<std::int64_t>& budgets, const WindowBudget& by) {
    HeadBudgets of_heads;
    for (std::size_t l = 0; l < held_.size(); ++l)
      of_heads.emplace_back(held_[l].size(), budgets[l]);
    select(of_heads, by);
  }
  void select(const HeadBudgets& budgets, const WindowBudget& by) {
    const double on_top = static_cast<double>(std::min(by.window, load_.prompt));
    // How many of the last tokens, which stay at 16 bits, are selected depends on the input.
    by_input_ = by_input_ || policy_.kv_residual > 0;
    if (by.per_query_head && shape().heads == 0)
      fail(ErrorCode::internal, "the bytes of query heads were asked for without their number");
    for (std::size_t l = 0; l < held_.size(); ++l)
      for (std::size_t g = 0; g < held_[l].size(); ++g) {
        Held& head = held_[l][g];
        if (g == 0) kinds_[l] = budgets[l];
        head.prompt = std::min(static_cast<double>(budgets[l].at(g)),
                               static_cast<double>(load_.prompt) - on_top) +
                      on_top;
        if (by.per_query_head)
          head.stored = static_cast<double>(shape().heads) / static_cast<double>(shape().kv_heads);
      }
  }
  /// What each of these layers holds of a budget that they share, `mean` tokens each beside
  /// `window`: what does not fit into the windows of the model goes to others of them.
  std::vector<std::int64_t> shared_budgets(std::vector<std::size_t> layers, std::int64_t mean,
                                           std::int64_t window) const {
    std::stable_sort(layers.begin(), layers.end(),
                     [&](std::size_t a, std::size_t b) { return held_at(a) < held_at(b); });
    std::vector<std::int64_t> budgets(held_.size());
    std::int64_t left = mean * std::ssize(layers);
    for (std::size_t i = 0; i < layers.size(); ++i) {
      const auto layers_left = static_cast<std::int64_t>(layers.size() - i);
      const std::int64_t room = std::max<std::int64_t>(0, held_at(layers[i]) - window);
      budgets[layers[i]] = std::min(left / layers_left, room);
      left -= budgets[layers[i]];
    }
    return budgets;
  }
  void select_tokens(std::int64_t budget) { select(alike(budget), {.window = 0}); }
  std::vector<std::int64_t> alike(std::int64_t budget) const {
    return std::vector<std::int64_t>(held_.size(), budget);
  }

  /// A layer with a window of the model's own holds no token before it. How much of a selection
  /// lies there depends on the input: no more than the window.
  void bound_by_windows() {
    for (std::size_t l = 0; l < held_.size(); ++l) {
      const auto room = static_cast<double>(held_at(l));
      for (std::size_t g = 0; g < held_[l].size(); ++g) {
        Held& head = held_[l][g];
        const bool selected =
            trimmed_[l][g] < 1 && head.tokens() < static_cast<double>(all_tokens());
        by_input_ = by_input_ || (selected && held_at(l) < all_tokens());
        head.generated = std::min(head.generated, room);
        head.prompt = std::min(head.prompt, room - head.generated);
      }
    }
  }

  /// What a trimmed head of the layer keeps.
  Held trimmed_to(const Proximity& of_part, std::size_t layer) const {
    const Proximity keep = windows_.empty() ? of_part : windows_[layer];
    const std::int64_t all = all_tokens(), first = all - held_at(layer);
    const std::int64_t behind_prompt = std::max(load_.prompt, first);
    if (!policy_.rolling)
      return {static_cast<double>(proximal_held(keep, load_.prompt, std::min(first, load_.prompt))),
              static_cast<double>(all - behind_prompt)};
    const std::int64_t generated = std::min(all - behind_prompt, keep.recent);
    return {static_cast<double>(proximal_held(keep, all, first) - generated),
            static_cast<double>(generated)};
  }

  /// Trimmed heads keep the window instead of what a selection leaves them.
  void blend_windows(const Proximity& keep) {
    for (std::size_t l = 0; l < held_.size(); ++l) {
      const Held trimmed = trimmed_to(keep, l);
      for (std::size_t g = 0; g < held_[l].size(); ++g) {
        const double rate = trimmed_[l][g];
        Held& head = held_[l][g];
        const double stored = rate * trimmed.tokens() + (1 - rate) * head.tokens() * head.stored;
        head.prompt += rate * (trimmed.prompt - head.prompt);
        head.generated += rate * (trimmed.generated - head.generated);
        if (head.stored != 1) head.stored = head.tokens() > 0 ? stored / head.tokens() : 1;
      }
    }
  }

  /// How many of the tokens that a head holds stay at 16 bits, if it holds the last ones.
  double at_16_bits(const Held& held, KvFormat format) const {
    if (facts_of(format).by_token) return 0;
    const std::int64_t all = all_tokens();
    return std::min(held.tokens(), static_cast<double>(
                                       all - coded_tokens(load_.prompt, all, policy_.kv_residual)));
  }

  /// The share of a head's distant keys that nobody reads: of layers above the lowest of all blocks
  /// that its query heads are in.
  double dropped_keys(std::size_t layer, std::size_t g) const {
    if (!pod_) return 0;
    if (pod_->lowest.empty()) return load_.keys_dropped.empty() ? 0 : load_.keys_dropped.at(layer);
    const std::size_t group = pod_->lowest.size() / held_[layer].size();
    for (std::size_t h = g * group; h < (g + 1) * group; ++h)
      if (pod_->lowest[h].at(layer) == static_cast<std::int64_t>(layer)) return 0;
    return 1;
  }

  double head_bytes(std::size_t layer, std::size_t g) const {
    const Held& held = held_[layer][g];
    const auto bytes_of = [&](KvFormat format, KvSide side) {
      const double plain = at_16_bits(held, format);
      return held.stored * ((held.tokens() - plain) * shape().bytes_of_row(format, side) +
                            plain * shape().plain_row());
    };
    const KvFormats& formats = formats_[layer];
    const double of_keys = bytes_of(formats.keys, KvSide::keys);
    double bytes = of_keys + bytes_of(formats.values, KvSide::values);
    if (const double dropped = dropped_keys(layer, g); dropped > 0) {
      // A selection spreads what it keeps: the distant share of all tokens is that of what is kept.
      const std::int64_t all = held_at(layer);
      const std::int64_t distant =
          all - proximal_held(pod_->proximal, all_tokens(), all_tokens() - all);
      bytes -=
          all > 0 ? dropped * static_cast<double>(distant) * of_keys / static_cast<double>(all) : 0;
    }
    return bytes - merged_bytes(layer, held);
  }

  /// What MiniCache saves at least: of a pair of layers each stores half of the direction and its
  /// norms.
  double merged_bytes(std::size_t layer, const Held& held) const {
    if (!merged_) return 0;
    const auto half = static_cast<std::size_t>(shape().layers / 2);
    const bool paired = layer >= half && (layer - half) / 2 * 2 + half + 1 < held_.size();
    if (!paired) return 0;
    const double rows = std::max(0.0, held.prompt - static_cast<double>(merged_->retain)),
                 saved_at_16 = shape().plain_row() / 2 - 2;
    double saved = 0;
    for (const KvSide side : {KvSide::keys, KvSide::values}) {
      const KvFormat format = side == KvSide::keys ? formats_[layer].keys : formats_[layer].values;
      const double coded = std::min(rows, held.tokens() - at_16_bits(held, format));
      saved += coded * (shape().bytes_of_row(format, side) / 2 - 2) + (rows - coded) * saved_at_16;
    }
    return saved;
  }

  CacheBytes in_bytes() const {
    CacheBytes out;
    out.by_input = by_input_;
    const bool freed = !load_.runtime || !masks_only();
    const auto block = static_cast<double>(page_tokens());
    for (std::size_t l = 0; l < held_.size(); ++l) {
      LayerBytes layer;
      for (std::size_t g = 0; g < held_[l].size(); ++g) {
        layer.tokens = std::max(layer.tokens, held_[l][g].tokens());
        layer.bytes += head_bytes(l, g);
      }
      if (!freed) {
        layer.tokens = static_cast<double>(held_at(l));
        layer.bytes =
            static_cast<double>(2 * shape().kv_heads) * shape().plain_row() * layer.tokens;
      }
      layer.bytes *= shape().share(static_cast<std::int64_t>(l));
      if (load_.runtime && layer.tokens > 0) {
        // Pages hold all KV heads of a layer.
        const auto all = static_cast<double>(all_tokens());
        const double room = std::min(all, layer.tokens + spare(l));
        double rounded = std::ceil(room / block) * block;
        if (load_.runtime->moves_rows && !heads_alike(l)) {
          rounded = std::ceil(all / block) * block - freed_of_pages(l, block) * block;
          layer.bytes = layer.tokens * static_cast<double>(2 * shape().kv_heads) *
                        shape().plain_row() * shape().share(static_cast<std::int64_t>(l));
        } else if (load_.runtime->moves_rows && held_at(l) == all_tokens())
          rounded = std::ceil(all / block) * block -
                    std::floor((all - layer.tokens - late(l)) / block) * block;
        layer.bytes *= rounded / layer.tokens;
        layer.tokens = rounded;
      }
      out.layers.push_back(layer);
    }
    if (load_.runtime && load_.runtime->equal_groups) out.padding = group_padding(out.layers);
    return out;
  }

  std::int64_t page_tokens() const {
    if (!load_.runtime) return 1;
    const std::int64_t own =
        page_tokens_of(load_.runtime->formats_taken, formats_, shape().head_dim);
    return own > 0 && part_of_type<Precision>(policy_) ? own : load_.runtime->page_tokens;
  }

  /// Whether the layer has a window, of the policy or of the model's own.
  bool slides(std::size_t layer) const {
    return trimmed_[layer].front() > 0 || held_at(layer) < all_tokens();
  }

  /// Tokens that the runtime holds beyond the layer's window.
  double spare(std::size_t layer) const {
    return load_.runtime && slides(layer) ? static_cast<double>(load_.runtime->window_spare_tokens)
                                          : 0;
  }

  /// The runtime masks attention and frees nothing.
  bool masks_only() const {
    if (policy_.parts.empty()) return false;
    const auto form = form_of(policy_.parts.front());
    return form && load_.runtime->form(*form).losses.contains(Loss::memory_not_freed);
  }

  /// A runtime that moves rows frees what a token drops so many tokens later.
  static constexpr std::int64_t kTokensLate = 2;
  bool frees_late() const {
    return load_.runtime && load_.runtime->moves_rows && load_.new_tokens >= kTokensLate;
  }
  /// Tokens of a layer that are dropped and still held. A cut partition counts them by itself; a
  /// window that rolls drops one before each token is read.
  double late(std::size_t layer) const {
    return frees_late() && policy_.rolling && trimmed_[layer].front() > 0 ? kTokensLate - 1 : 0;
  }

  bool heads_alike(std::size_t layer) const {
    const auto& heads = held_[layer];
    return std::all_of(heads.begin(), heads.end(),
                       [&](const Held& head) { return head.prompt == heads.front().prompt; });
  }
  /// The first blocks of a request that are free where heads keep different numbers of tokens, in
  /// pages of one head each (export/python/vllm, pages.py).
  double freed_of_pages(std::size_t layer, double block) const {
    double least = std::numeric_limits<double>::infinity();
    for (std::int64_t token = 0; token < page_tokens(); ++token) {
      const auto more = static_cast<double>(token);
      double pages = 0;
      for (const Held& head : held_[layer]) pages += std::ceil((head.prompt + more) / block);
      least = std::min(least, std::ceil((static_cast<double>(load_.prompt) + more) / block) -
                                  std::ceil(pages / static_cast<double>(held_[layer].size())));
    }
    return least;
  }

  double group_padding(const std::vector<LayerBytes>& layers) const {
    // Layers of a kind keep as many tokens in each head, or have a window of the model's own of one
    // size.
    std::map<std::tuple<std::vector<double>, std::vector<std::int64_t>, std::int64_t>,
             std::vector<const LayerBytes*>>
        kinds;
    for (std::size_t l = 0; l < layers.size(); ++l)
      kinds[{trimmed_[l], kinds_[l], held_at(l)}].push_back(&layers[l]);
    std::vector<std::int64_t> counts;
    for (const auto& [kind, of_kind] : kinds) counts.push_back(std::ssize(of_kind));
    const auto padding = padded_layers(counts);
    double bytes = 0;
    std::size_t number = 0;
    for (const auto& [kind, of_kind] : kinds)
      bytes += static_cast<double>(padding.of_kinds[number++]) * of_kind.front()->bytes;
    return bytes;
  }

  const Policy& policy_;
  const CacheLoad& load_;
  CacheShape shape_;
  std::vector<KvFormats> formats_;            // [layer]
  std::vector<std::vector<Held>> held_;       // [layer][KV head], of heads that are not trimmed
  std::vector<std::vector<double>> trimmed_;  // likewise, the share of inputs
  std::vector<Proximity> windows_;            // of the layers, where they differ
  HeadBudgets kinds_;                         // of the layers: alike where they select alike
  const Pod* pod_ = nullptr;
  const MiniCache* merged_ = nullptr;
  bool by_input_ = false;
};

}  // namespace

double CacheBytes::total() const {
  double bytes = padding;
  for (const auto& layer : layers) bytes += layer.bytes;
  return bytes;
}

CacheShape cache_shape(const ModelInfo& model) {
  return {model.layers,  model.kv_heads, model.head_dim,
          model.windows, model.heads,    model.cached_values};
}

CacheBytes cache_bytes(const Policy& policy, const CacheLoad& load) {
  return Accounting(policy, load).count();
}

double kv_ratio(const Part& part, const CacheShape& shape, std::int64_t prompt) {
  const CacheLoad load{.shape = shape, .prompt = prompt};
  return shape.full_bytes(prompt) / cache_bytes({.name = {}, .parts = {part}}, load).total();
}

namespace {

/// The same cache as one KV head that is as wide as all of them.
CacheLoad in_one_head(const CacheShape& shape, std::int64_t prompt) {
  CacheLoad load{.shape = shape, .prompt = prompt};
  load.shape.head_dim *= shape.kv_heads;
  load.shape.kv_heads = 1;
  return load;
}

/// How many sequences of so many bytes fit; 0 if none does.
std::int64_t sequences_in(double memory_bytes, double one) {
  return one > 0 && memory_bytes > 0
             ? static_cast<std::int64_t>(std::min(std::floor(memory_bytes / one), 1e15))
             : 0;
}

}  // namespace

Savings layer_savings(std::span<const double> rates, const CacheShape& shape, std::int64_t length,
                      kernels::Proximity keep) {
  CacheLoad load = in_one_head(shape, length);
  load.lazy_rates.emplace();
  for (const double rate : rates) load.lazy_rates->push_back({rate});
  const auto layers = static_cast<double>(shape.layers);
  const double lazy = std::accumulate(rates.begin(), rates.end(), 0.0);
  SimLayerKv part;
  part.keep = keep;
  Savings out;
  out.layer_ratio =
      lazy < layers ? layers / (layers - lazy) : std::numeric_limits<double>::infinity();
  out.full_bytes = shape.full_bytes(length);
  out.kept_bytes = cache_bytes({.name = {}, .parts = {part}}, load).total();
  out.kv_ratio = out.full_bytes / out.kept_bytes;
  out.kv_ratio_4bit =
      out.kv_ratio * shape.bytes_per_token() / shape.bytes_per_token(KvFormat::int4);
  return out;
}

double pod_saved(std::span<const double> dropped, const CacheShape& shape, std::int64_t n_tokens,
                 kernels::Proximity proximal) {
  CacheLoad load = in_one_head(shape, n_tokens);
  load.keys_dropped.assign(dropped.begin(), dropped.end());
  Pod part;
  part.proximal = proximal;
  const double full = cache_bytes({.name = {}, .parts = {}}, load).total();
  const double kept = cache_bytes({.name = {}, .parts = {part}}, load).total();
  return full > 0 ? (full - kept) / full : 0;
}

std::int64_t greatest_batch(double memory_bytes, const CacheShape& shape, std::int64_t n_tokens,
                            double saved) {
  return sequences_in(memory_bytes, shape.full_bytes(n_tokens) * (1 - saved));
}

std::optional<LazyRates> lazy_rates_of(const Document& document, const Policy& policy) {
  const auto* lazy = part_of_type<SimLayerKv>(policy);
  if (!lazy || lazy->fixed || !document.sections.contains(method::kSimLayerKv.name))
    return std::nullopt;
  const auto& section = document.sections.at(method::kSimLayerKv.name);
  const auto& of =
      lazy->per_head && section.contains("per_head") ? section.at("per_head") : section;
  const char* name = lazy->per_head ? "rates" : "lazy_rates";
  if (!of.is_object() || !of.contains(name) || !of.at(name).is_array()) return std::nullopt;
  LazyRates rates;
  for (const auto& row : of.at(name)) {
    rates.emplace_back();
    for (const auto& rate : row.is_array() ? row : nlohmann::json::array({row})) {
      if (!rate.is_number()) return std::nullopt;
      rates.back().push_back(std::clamp(rate.get<double>(), 0.0, 1.0));
    }
    if (rates.back().empty()) return std::nullopt;
  }
  if (static_cast<std::int64_t>(rates.size()) != document.model.layers) return std::nullopt;
  return rates;
}

std::optional<double> bytes_while_read(const Policy& policy, CacheLoad load) {
  if (!load.runtime || !load.runtime->moves_rows) return std::nullopt;
  load.new_tokens = 0;
  load.before_cut = true;
  return cache_bytes(policy, load).total();
}

Room greatest(const Policy& policy, const CacheLoad& load, double memory_bytes,
              std::int64_t batch) {
  Room room;
  const auto sizes = [&](const CacheLoad& at) -> std::pair<double, double> {
    const double end = cache_bytes(policy, at).total();
    return {end, std::max(end, bytes_while_read(policy, at).value_or(0))};
  };
  const auto [end, most] = sizes(load);
  room.batch = most > memory_bytes ? 0 : sequences_in(memory_bytes - (most - end), end);
  const auto fits = [&](std::int64_t prompt) {
    CacheLoad at = load;
    at.prompt = prompt;
    const auto [at_end, at_most] = sizes(at);
    return at_most + at_end * static_cast<double>(batch - 1) <= memory_bytes;
  };
  // What a policy keeps grows with the prompt, but for LagKV's cuts, which make it dip by less
  // than a partition: the search is right to that.
  std::int64_t low = 0, high = kMostContext + 1;
  while (high - low > 1) {
    const std::int64_t middle = low + (high - low) / 2;
    (fits(middle) ? low : high) = middle;
  }
  room.context = low;
  return room;
}

}  // namespace kvatlas::calibrate
