// SPDX-License-Identifier: Apache-2.0
// The rules of calibration (docs/calibration.md): from statistics and settings to
// decisions. Pure functions, quick enough to follow a slider: the command line and the viewer call
// the same. Lists run over samples first, then over layers. Impossible arguments are
// Error(internal), for callers check what users and files say.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "calibrate/policy/kv_format.hpp"
#include "calibrate/rules/certainty.hpp"
#include "kernels/last_rows.hpp"
#include "kernels/layer_budgets.hpp"

namespace kvatlas::calibrate {

// Statistics ------------------------------------------------------------------------------------

double mean_of(std::span<const double> values);  // NaN of none
/// The divisor is n - 1; the deviation of fewer than two values is 0.
double deviation_of(std::span<const double> values);

/// The distinct ones of the nearest-rank quantiles k / parts, k = 1 to parts, ascending. NaN are
/// passed over.
std::vector<double> nearest_rank_quantiles(std::vector<double> values, int parts);

/// Whole numbers near `values` with the sum `total`: each rounded down, and what is left goes to
/// the largest remainders, ties to the lower index. Values are at least 0 and finite; they are
/// scaled to the total first.
std::vector<std::int64_t> round_to_total(std::span<const double> values, std::int64_t total);

/// The points that no other beats: none has at least their gain at a lower cost, or more gain at
/// no higher cost. Indices, by ascending cost; of equal points the first.
std::vector<std::size_t> pareto_front(std::span<const double> cost, std::span<const double> gain);

/// Spearman's, ties by mean ranks; NaN where a list is constant or has fewer than two values.
double rank_correlation(std::span<const double> a, std::span<const double> b);

/// Positions for a choice and for judging it.
struct Split {
  std::vector<std::size_t> choice, held_out;  // ascending
};
/// A share of every group held out, by the seed; the shares' remainders go where they are largest.
/// Nothing is held out of fewer than ten.
Split split_samples(std::span<const std::string> groups, double held_out, std::uint64_t seed);
inline constexpr std::size_t kLeastToHoldOut = 10;

// SimLayerKV ------------------------------------------------------------------------------------

using Masses = std::vector<std::vector<double>>;           // [sample][layer] (or step)
using LayerFlags = std::vector<std::uint8_t>;              // [layer], 1: lazy
using HeadFlags = std::vector<std::vector<std::uint8_t>>;  // [layer][KV head], likewise

/// All distinct masses, thinned to their nearest-rank quantiles k/40. At the last one, the greatest
/// mass, nothing is lazy.
std::vector<double> threshold_candidates(const Masses& masses);

/// A mass as a threshold that can be written down: upwards to five decimals, so that the layer
/// whose mass it is stays full, also where the model's masses differ from the profile's in the last
/// digits.
double readable_threshold(double mass);

/// A layer is lazy iff its mass > threshold; at threshold 1 none is.
bool is_lazy(double mass, double threshold);
LayerFlags lazy_layers(std::span<const double> layer_masses, double threshold);
std::int64_t count_lazy(const LayerFlags& lazy);

/// The share of samples in which the layer is lazy: [layer].
std::vector<double> lazy_rates(const Masses& masses, double threshold);

/// Layers fixed for all inputs: those whose lazy rate is at least `share`.
struct StaticView {
  LayerFlags lazy;
  double disagreement = 0;  // share of (sample, layer) that the input itself decides otherwise
};
StaticView static_view(const Masses& masses, double threshold, double share = 0.5);

/// Of one layer: the share of later tokens, over all samples, whose class is that of the first
/// token of their sample; [sample][step], NaN after the end. NaN if there are no later tokens.
double consistency(const Masses& masses_of_steps, double threshold);

/// The control of Fig. 3: as many non-lazy layers, those of the smallest mass (ties: the lower
/// layer), as are lazy; all non-lazy ones if they are fewer.
LayerFlags opposite_layers(std::span<const double> layer_masses, const LayerFlags& lazy);

/// The smallest threshold whose score is not below full by more than the tolerance there and at
/// every larger one. scores[i] belongs to the i-th of ascending thresholds. None: not even the
/// largest.
std::optional<std::size_t> choose_threshold(std::span<const double> scores, double full,
                                            double tolerance);

/// Bytes of a KV cache at 16 bits, and at 4 bits with a 16-bit scale and minimum per 32 values.
struct CacheShape {
  std::int64_t layers = 0, kv_heads = 0, head_dim = 0;
  /// [layer]: the model's own windows in tokens, 0 for none. Empty if no layer has one.
  std::vector<std::int64_t> windows = {};
  std::int64_t heads = 0;  // query heads; 0 if nothing is asked that depends on them
  /// [layer]: numbers of a token, such as those of a latent. Empty: a key and a value a KV head.
  std::vector<std::int64_t> values = {};

  /// What a layer stores, as a share of a key and a value a KV head.
  double share(std::int64_t layer) const;
  double bytes_per_token(KvFormat format = KvFormat::f16) const;          // of all layers
  double plain_row() const { return 2 * static_cast<double>(head_dim); }  // at 16 bits
  double bytes_of_row(KvFormat format, KvSide side) const;                // of one KV head
  /// How many of so many tokens the layer can still attend to, and therefore holds.
  std::int64_t held(std::int64_t layer, std::int64_t tokens) const;
  /// The first of so many tokens that the layer holds.
  std::int64_t first_held(std::int64_t layer, std::int64_t tokens) const {
    return tokens - held(layer, tokens);
  }
  double full_bytes(std::int64_t tokens) const;  // of the cache that no policy cuts
};

/// How many of `all` tokens, from the first on, are stored in fewer bits by a cache that was cut
/// after `cut` tokens: at the cut all but the last `residual`, and then 32 more whenever so many
/// more are there.
std::int64_t coded_tokens(std::int64_t cut, std::int64_t all, std::int64_t residual);

/// How many of the first `initial` and the last `recent` of so many tokens are not before `first`.
std::int64_t proximal_held(kernels::Proximity keep, std::int64_t tokens, std::int64_t first);

struct Savings {
  double layer_ratio = 1;    // layers / layers kept full; infinite if none is
  double kv_ratio = 1;       // bytes of the full cache / bytes kept, at `length` tokens
  double kv_ratio_4bit = 1;  // with what is kept at 4 bits
  double full_bytes = 0, kept_bytes = 0;
};
/// `rates`: the share of each layer that is lazy, in the mean over inputs and KV heads.
Savings layer_savings(std::span<const double> rates, const CacheShape& shape, std::int64_t length,
                      kernels::Proximity keep);

/// KV heads of one sample, [layer][KV head]: means of `values`, [layer, query head, row], over the
/// group's heads and the last `used` rows. A layer's mass is the mean over its KV heads, for each
/// group has as many query heads.
Masses kv_head_masses(std::span<const float> values, std::int64_t layers, std::int64_t heads,
                      std::int64_t kv_heads, std::int64_t used);

/// The masses of several samples, by KV head and by layer.
struct SampleMasses {
  std::vector<Masses> heads;  // [sample][layer][KV head]
  Masses layers;              // [sample][layer]

  /// NaN says that this sample was not captured: it adds nothing and gives false.
  bool add(Masses of_sample);
  Masses decided(bool per_head) const;  // what is held against the threshold
};
/// [layer]
std::vector<double> mean_masses(const Masses& masses);

/// What is lazy: layers or KV heads, decided by the input or by the static view.
struct LazyChoice {
  bool per_head = false, fixed = false;
  double share = 0.5;  // lazy rate from which the static view counts it as lazy
};
/// The static view; rows of one entry for layers.
HeadFlags fixed_lazy(const SampleMasses& masses, double threshold, const LazyChoice& choice);
/// The share of each layer that is lazy, in the mean over the samples: [layer]. KV heads count as a
/// part of their layer.
std::vector<double> lazy_shares(const SampleMasses& masses, double threshold,
                                const LazyChoice& choice);

/// Masses of the generated tokens: [layer][sample][step].
using StepMasses = std::vector<Masses>;
/// `values`: [layer, step] of one sample.
void add_steps(StepMasses& steps, std::span<const float> values, std::int64_t layers);
/// [layer], or none.
std::vector<double> layer_consistency(const StepMasses& steps, double threshold);

/// KV heads by themselves: rates [layer][KV head] of masses [sample][layer][KV head], and the
/// streaming ones among them.
struct HeadView {
  std::vector<std::vector<double>> rates;
  HeadFlags streaming;
};
HeadView head_view(const std::vector<Masses>& masses, double threshold, double share = 0.5);

// PoD -------------------------------------------------------------------------------------------

/// How alike every pair of layers is: [head][layer][layer].
struct Similarity {
  std::int64_t heads = 0, layers = 0;
  std::vector<double> values;
  double at(std::int64_t head, std::int64_t a, std::int64_t b) const {
    return values[(head * layers + a) * layers + b];
  }
};
/// The mean over [sample] of [head, layer, layer].
Similarity mean_similarity(std::span<const std::vector<float>> samples, std::int64_t heads,
                           std::int64_t layers);
/// 1 - mean JS divergence.
Similarity layer_similarity(std::span<const std::vector<float>> divergences, std::int64_t heads,
                            std::int64_t layers);
/// The smallest over the query heads of each group.
Similarity of_kv_heads(const Similarity& similarity, std::int64_t kv_heads);

/// [head][layer]: the lowest layer of the head's block.
using Blocks = std::vector<std::vector<std::int64_t>>;
/// A layer joins the block iff its similarity to every layer of it is at least delta.
Blocks layer_blocks(const Similarity& similarity, double delta);
/// Blocks of KV heads, given to each of their query heads.
Blocks for_query_heads(const Blocks& blocks, std::int64_t heads);
std::int64_t count_blocks(const Blocks& blocks);

/// The share of each layer's KV heads whose distant keys no query head reads: [layer]. `blocks` are
/// of query heads.
std::vector<double> keys_dropped(const Blocks& blocks, std::int64_t kv_heads);

/// The share of the KV cache saved at n tokens: the keys of distant tokens in what is dropped of
/// each layer.
double pod_saved(std::span<const double> dropped, const CacheShape& shape, std::int64_t n_tokens,
                 kernels::Proximity proximal);
/// How many sequences of so many tokens fit; 0 if none does.
std::int64_t greatest_batch(double memory_bytes, const CacheShape& shape, std::int64_t n_tokens,
                            double saved = 0);

/// A row of the sweep of delta.
struct PodPoint {
  double delta = 0, dropped = 0;    // the share of (layer, KV head) whose distant keys are dropped
  std::int64_t blocks = 0;          // counted over query heads
  std::vector<double> layers = {};  // the same share in each layer
};
PodPoint pod_point(double delta, const Blocks& blocks, std::int64_t kv_heads);
/// `similarity` is of query heads; `per_query_head`: each is grouped by itself, else their KV heads
/// are.
PodPoint pod_point(const Similarity& similarity, std::int64_t kv_heads, bool per_query_head,
                   double delta);
Blocks pod_blocks(const Similarity& similarity, std::int64_t kv_heads, bool per_query_head,
                  double delta);
/// One point for every hundredth of delta, ascending from 0 to 1.
std::vector<PodPoint> pod_hundredths(const Similarity& similarity, std::int64_t kv_heads,
                                     bool per_query_head);
/// The greatest delta of these that saves this share of the cache at n tokens; none: none does.
std::optional<double> delta_for(std::span<const PodPoint> ascending, const CacheShape& shape,
                                std::int64_t n_tokens, kernels::Proximity proximal, double saved);

/// The logarithm of the sum of the exponentials, of which none overflows or vanishes. Minus
/// infinity without values.
double log_sum_exp(std::span<const double> values);
/// The gate g = 1 / (1 + exp(distant - proximal)) of two log-sum-exps: the share of the attention
/// that the proximal tokens receive.
double gate_of(double proximal, double distant);

/// One sample's log-sum-exps: [layer, head, row] over the proximal and the distant keys.
struct GateRows {
  std::span<const float> proximal, distant;
  std::int64_t layers = 0, heads = 0, rows = 0;
};
/// The gates of all samples, each between the distant part by the block's lowest layer and the
/// proximal part by the layer itself.
class GateCurve {
 public:
  explicit GateCurve(Blocks blocks) : blocks_(std::move(blocks)) {}
  /// Rows before the prompt (NaN) and rows without distant keys do not count.
  void add(const GateRows& rows);
  /// The share of (row, head, layer) that skips its distant part: layers that are not the lowest of
  /// their block and whose g >= tau; at tau 1 none does. NaN without rows.
  double skipped(double tau) const;
  std::int64_t rows() const { return counted_; }

 private:
  Blocks blocks_;                                                              // of query heads
  std::vector<std::int64_t> upper_ = std::vector<std::int64_t>(kBins + 1, 0);  // g by its bin
  std::int64_t counted_ = 0;
  static constexpr int kBins = 1000;  // tau is told apart to thousandths
};

// DynamicKV -------------------------------------------------------------------------------------

/// Of one sample, by how many of the largest window scores lie in each layer.
using kernels::layer_budgets;
using kernels::LayerBudgets;
using kernels::progressive_budgets;

/// The budgets of several samples, put together: [layer].
struct BudgetSummary {
  std::vector<double> mean, deviation;
  std::vector<std::int64_t> least, most;
  std::vector<std::int64_t> budgets;  // the means, by largest remainder to their sum, rounded
};
BudgetSummary summarise_budgets(const std::vector<std::vector<std::int64_t>>& budgets);

/// PyramidKV's: from 2 mean - b in the lowest layer to b = mean / 20 in the highest, by largest
/// remainder to mean * layers.
std::vector<std::int64_t> pyramid_budgets(std::int64_t mean, std::int64_t layers);

/// Windows that shrink linearly from the lowest layer to the highest, where they are `keep`, and
/// together hold as many of so many tokens as if only so many layers were trimmed to `keep`:
/// [layer]. A window is no larger than the tokens.
std::vector<kernels::Proximity> shrinking_windows(std::int64_t layers, std::int64_t trimmed,
                                                  std::int64_t n_tokens, kernels::Proximity keep);

/// Mean share of the retained scores in each layer: [layer], of counts [sample][layer].
std::vector<double> retention_shares(const std::vector<std::vector<std::int64_t>>& counts);

// HeadKV ----------------------------------------------------------------------------------------

/// What the KV heads share: tokens besides the window.
struct SharedTokens {
  std::int64_t mean = 0;   // a head
  std::int64_t least = 0;  // that each head gets, of these
  std::int64_t most = 0;   // that a head can use, such as those of the longest prompt
};
/// [layer][KV head]: what is left of the tokens beside the least is shared in proportion to the
/// scores, which are at least 0; evenly if all of them are 0. What a head cannot use goes to the
/// others. The sum is the mean times the heads, or less if every head has the most.
std::vector<std::vector<std::int64_t>> budgets_by_score(const Masses& scores,
                                                        const SharedTokens& tokens);

/// The attention that a head keeps of so many tokens besides the window, where it is known.
struct KeptCurve {
  std::vector<std::int64_t> tokens;     // ascending, from 1 on
  std::vector<double> kept;             // of none it is 0
  double at(std::int64_t count) const;  // between two that are known, on a straight line
};
/// [layer][KV head]: the tokens go where they keep most attention, along the concave hull of each
/// curve; of equal gains to the lower layer and head. The sum is the mean times the heads, or less
/// if every head has the most tokens that its curve knows.
std::vector<std::vector<std::int64_t>> budgets_by_gain(
    const std::vector<std::vector<KeptCurve>>& curves, const SharedTokens& tokens);

// LagKV -----------------------------------------------------------------------------------------

struct LagShape {
  std::int64_t sink = 0, lag = 0, keep = 0;
};
/// Tokens left of n; n itself while n < sink + 2 lag.
std::int64_t lag_kept_tokens(std::int64_t n_tokens, const LagShape& shape);
/// 1 - that / n.
double lag_compression(std::int64_t n_tokens, const LagShape& shape);
/// The shape of the best score that compresses so much; ties: the one that compresses more, then
/// the first. None: none compresses so much.
std::optional<std::size_t> recommend_lag(std::span<const double> compression,
                                         std::span<const double> score, double wanted);

}  // namespace kvatlas::calibrate
