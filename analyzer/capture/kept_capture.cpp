// SPDX-License-Identifier: Apache-2.0
// What selections keep of the prompt, and how much of the first generated token's attention falls
// on it.
#include <algorithm>
#include <numeric>
#include <optional>

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/gather.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include "analyzer/capture/sample_capture_impl.hpp"
#include "analyzer/capture/selections-inl.hpp"
#include "base/parallel.hpp"
#include "kernels/kernels.hpp"
#include "kernels/select.hpp"

namespace kvatlas::capture {
namespace {

namespace name = profile::name;
using kernels::LagVariant;
using profile::KeepRule;

using Order = std::vector<std::int32_t>;

/// The selections of one layer.
class Keeper {
 public:
  Keeper(const SampleCapture::State& state, const AttentionInputs& in)
      : s_(state), layer_(in.layer), n_(state.n_tokens), kv_heads_(state.config.n_kv_heads) {
    for (std::size_t number = 0; number < s_.settings.window_kinds.size(); ++number) {
      const auto& kind = s_.settings.window_kinds[number];
      orders_.emplace_back();
      if (n_ <= kind.window) continue;  // everything is kept
      std::int64_t most = 0;
      for (const KeepRule& selection : s_.selections)
        if (by_window(selection) && selection.kind == number)
          most = std::max(most, best_of(selection));
      orders_.back() =
          orders(window_scores(s_.held_rows.select(0, layer_), kind, kv_heads_).cpu(), most);
    }
    const at::Tensor& columns = s_.column_sums[layer_];
    if (columns.defined()) {
      std::int64_t most = 0;  // the recent ones may be among the best and are passed over
      for (const KeepRule& selection : s_.selections)
        if (selection.method == KeepRule::Method::h2o) most = std::max(most, selection.budget);
      column_orders_ = orders(
          columns.view({kv_heads_, s_.group(), n_}).to(at::kDouble).mean(1).to(at::kFloat), most);
    }
    std::int64_t tokens = 0;
    for (const KeepRule& selection : s_.selections) {
      const std::int64_t kept =
          cuts(selection) ? kernels::lag_length(n_, s_.settings.sink, selection.lag, selection.keep)
                          : 0;
      lag_kept_.push_back({tokens, kept});
      tokens += kept;
    }
    lag_positions_ = at::empty({kv_heads_, tokens}, float_on(in.query).dtype(at::kLong));
    for (const auto variant : {LagVariant::lag, LagVariant::local, LagVariant::l2}) {
      std::vector<LagCut> of_variant;
      for (std::size_t number = 0; number < s_.selections.size(); ++number)
        if (const auto& rule = s_.selections[number]; cuts(rule) && rule.variant == variant)
          of_variant.push_back(
              {rule.lag, rule.keep,
               lag_positions_.narrow(1, lag_kept_[number].begin, lag_kept_[number].tokens)});
      cut_by_lag(in.key, in.value, n_, s_.settings.sink, variant, of_variant);
    }
  }

  /// Copies from the GPU, all at once, because each copy waits for it.
  void fetch_positions() { lag_positions_ = lag_positions_.cpu(); }

  /// What LagKV's selections keep of each KV head's attention [n_kv_heads, n_tokens + 1], without
  /// the token itself: [selection, n_kv_heads], 0 where a selection is none of LagKV's. Worked out
  /// where the attention and the positions are. A running sum would take fewer operations, but is
  /// not the same in every run on a GPU.
  at::Tensor lag_masses(const at::Tensor& attention) const {
    const at::Tensor weights = attention.gather(1, lag_positions_);
    const at::Tensor none = at::zeros({kv_heads_}, weights.options());
    std::vector<at::Tensor> sums;
    for (const auto& [begin, tokens] : lag_kept_)
      sums.push_back(tokens > 0 ? weights.narrow(1, begin, tokens).sum(1) : none);
    return at::stack(sums).cpu();
  }
  std::int64_t lag_tokens(std::size_t number) const { return lag_kept_[number].tokens; }

  /// What a selection keeps in a KV head, ascending. Nothing: the prompt is too short to tell.
  std::optional<std::vector<std::int64_t>> kept(std::size_t number, std::int64_t kv_head) const {
    const KeepRule& selection = s_.selections[number];
    const auto head = static_cast<std::size_t>(kv_head);
    switch (selection.method) {
      case KeepRule::Method::streaming: {
        Order initial(static_cast<std::size_t>(std::min(selection.proximity.initial, n_)));
        std::iota(initial.begin(), initial.end(), 0);
        const std::int64_t first = std::ssize(initial);
        return kernels::best_and_rest(initial, first,
                                      std::max(first, n_ - selection.proximity.recent), n_);
      }
      case KeepRule::Method::snapkv:
      case KeepRule::Method::dynamickv: {
        const std::int64_t before = n_ - s_.settings.window_kinds[selection.kind].window;
        if (before <= 0) return everything();
        return kernels::best_and_rest(orders_[selection.kind][head], best_of(selection), before,
                                      n_);
      }
      case KeepRule::Method::h2o: {
        if (column_orders_.empty()) return std::nullopt;
        const std::int64_t best = best_of(selection);
        return kernels::best_and_rest(column_orders_[head], best,
                                      kernels::h2o_recent(n_, selection.budget, best), n_);
      }
      case KeepRule::Method::lagkv: {
        if (!long_enough(selection.lag)) return std::nullopt;
        const Run& run = lag_kept_[number];
        if (run.tokens == 0) return everything();
        const auto* of_head =
            lag_positions_.const_data_ptr<std::int64_t>() + kv_head * lag_positions_.size(1);
        return std::vector<std::int64_t>(of_head + run.begin, of_head + run.begin + run.tokens);
      }
    }
    return std::nullopt;
  }

 private:
  std::vector<std::int64_t> everything() const { return kernels::best_and_rest({}, 0, 0, n_); }

  std::vector<Order> orders(const at::Tensor& scores, std::int64_t most) const {
    std::vector<Order> out(static_cast<std::size_t>(kv_heads_));
    parallel_for(kv_heads_, [&](std::int64_t head, int) {
      out[head] = kernels::by_score(scores.const_data_ptr<float>() + head * scores.size(1),
                                    scores.size(1), most);
    });
    return out;
  }

  static bool by_window(const KeepRule& selection) {
    return selection.method == KeepRule::Method::snapkv ||
           selection.method == KeepRule::Method::dynamickv;
  }

  /// How many tokens a selection takes by their scores.
  std::int64_t best_of(const KeepRule& selection) const {
    if (selection.method == KeepRule::Method::h2o) return kernels::h2o_heavy(selection.budget);
    if (selection.method == KeepRule::Method::snapkv)
      return selection.budget - s_.settings.window_kinds[selection.kind].window;
    const auto& budgets = s_.settings.budgets;
    const auto number =
        std::find(budgets.begin(), budgets.end(), selection.budget) - budgets.begin();
    return s_.layer_budgets[selection.kind][number][layer_];
  }

  bool long_enough(std::int64_t lag) const {
    return kernels::lag_cut_partitions(n_, s_.settings.sink, lag) > 0;
  }
  /// Whether it is one of LagKV's, and cuts the prompt here.
  bool cuts(const KeepRule& selection) const {
    return selection.method == KeepRule::Method::lagkv && long_enough(selection.lag) &&
           layer_ >= kernels::first_layer_cut(selection.variant);
  }

  /// A part of a row of lag_positions_.
  struct Run {
    std::int64_t begin, tokens;
  };

  const SampleCapture::State& s_;
  std::int64_t layer_, n_, kv_heads_;
  std::vector<std::vector<Order>> orders_;  // [window kind][KV head]
  std::vector<Order> column_orders_;        // [KV head]; empty where column sums were not taken
  std::vector<Run> lag_kept_;               // [selection], of lag_positions_
  at::Tensor lag_positions_;                // [n_kv_heads, kept by all of LagKV's selections]
};

/// The attention of the generated token in each KV head, the mean over its query heads:
/// [n_kv_heads, n_tokens + 1].
at::Tensor mean_row(const AttentionInputs& in, std::int64_t kv_heads) {
  const std::int64_t heads = in.query.sizes[0], keys = in.key.sizes[1];
  const at::Tensor row = at::empty({heads, 1, keys}, float_on(in.query));
  kernels::LastRows io = rows_of(in);
  io.probs = view_of<float, 3>(row);
  kernels::last_rows(io);
  return row.view({kv_heads, heads / kv_heads, keys}).to(at::kDouble).mean(1);
}

}  // namespace

void SampleCapture::State::add_kept(const AttentionInputs& in) {
  const std::int64_t n = n_tokens, K = config.n_kv_heads;
  const auto S = static_cast<std::int64_t>(selections.size());
  const std::int64_t mask_bytes = (n + 7) / 8;
  std::span<std::uint8_t> mask;
  if (with_maps && settings.maps)
    mask = array(name::kKeptMask, {S, layers(), K, mask_bytes}).values<std::uint8_t>();
  Keeper keeper(*this, in);
  const at::Tensor attention_there = mean_row(in, K), attention = attention_there.cpu();
  at::Tensor lag_masses;
  if (!attention_there.is_cpu()) {
    if (mask.empty())
      lag_masses = keeper.lag_masses(attention_there);
    else
      keeper.fetch_positions();
  }
  const auto mass = array(name::kKeptMass).values<float>();
  const auto tokens = array(name::kKeptTokens).values<std::int32_t>();
  parallel_for(S * K, [&](std::int64_t task, int) {
    const std::int64_t head = task % K;
    const auto number = static_cast<std::size_t>(task / K);
    const auto place =
        number * static_cast<std::size_t>(layers()) + static_cast<std::size_t>(in.layer);
    const auto of_head = place * static_cast<std::size_t>(K) + static_cast<std::size_t>(head);
    const double* weight = attention.const_data_ptr<double>() + head * (n + 1);
    double sum = weight[n];  // the token itself
    std::int32_t count = 0;
    if (lag_masses.defined() && keeper.lag_tokens(number) > 0) {
      sum += lag_masses.const_data_ptr<double>()[task];
      count = static_cast<std::int32_t>(keeper.lag_tokens(number));
    } else {
      const auto kept = keeper.kept(number, head);
      if (!kept) return;
      count = static_cast<std::int32_t>(kept->size());
      for (const auto j : *kept) {
        sum += weight[j];
        if (!mask.empty())
          mask[of_head * static_cast<std::size_t>(mask_bytes) + static_cast<std::size_t>(j / 8)] |=
              static_cast<std::uint8_t>(1 << (j % 8));
      }
    }
    mass[of_head] = static_cast<float>(sum);
    if (head == 0) tokens[place] = count;
  });
}

}  // namespace kvatlas::capture
