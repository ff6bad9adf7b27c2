// SPDX-License-Identifier: Apache-2.0
// Which statistics a profile can hold: their names, settings and shapes (docs/profiling.md).
// Written by the profiler, read by calibration and by the viewer.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "analyzer/config/config.hpp"
#include "analyzer/profile/profile.hpp"
#include "base/error.hpp"
#include "base/pooling.hpp"
#include "kernels/lag_scores.hpp"
#include "kernels/last_rows.hpp"

namespace kvatlas::profile {

/// The names of the arrays, as in the file.
namespace name {
inline constexpr const char* kMass = "lazy/proximal_mass";
inline constexpr const char* kProximalLse = "lazy/proximal_lse";
inline constexpr const char* kDistantLse = "lazy/distant_lse";
inline constexpr const char* kDecodeMass = "lazy/decode_mass";
inline constexpr const char* kDecodeProximalLse = "lazy/decode_proximal_lse";
inline constexpr const char* kDecodeDistantLse = "lazy/decode_distant_lse";
inline constexpr const char* kGeneratedMass = "lazy/generated_mass";
inline constexpr const char* kGeneratedTokens = "lazy/generated_tokens";
inline constexpr const char* kRowMass = "lazy/row_mass";
inline constexpr const char* kRowPositions = "lazy/row_positions";
inline constexpr const char* kDivergence = "js/divergence";
inline constexpr const char* kCounts = "scores/counts";
inline constexpr const char* kRetention = "scores/retention";
inline constexpr const char* kWindowScores = "scores/window";
inline constexpr const char* kKeptMass = "kept/mass";
inline constexpr const char* kKeptTokens = "kept/tokens";
inline constexpr const char* kKeptMask = "kept/mask";
inline constexpr const char* kKeyNorm = "norms/key";
inline constexpr const char* kValueNorm = "norms/value";
inline constexpr const char* kKeyRange = "norms/key_range";
inline constexpr const char* kValueRange = "norms/value_range";
inline constexpr const char* kKeyNormOfToken = "norms/key_of_token";
inline constexpr const char* kValueNormOfToken = "norms/value_of_token";
inline constexpr const char* kValueCosine = "values/cosine";
inline constexpr const char* kTopIds = "next/top_ids";
inline constexpr const char* kTopLogits = "next/top_logits";
inline constexpr const char* kLogitSum = "next/logit_sum";
inline constexpr const char* kLogSumExp = "next/logsumexp";
inline constexpr const char* kArgmax = "next/argmax";
inline constexpr const char* kAgreement = "next/proximal_agreement";
inline constexpr const char* kHeadReach = "heads/reach";
inline constexpr const char* kQueryMean = "queries/mean";
inline constexpr const char* kQueryMagnitude = "queries/magnitude";
inline constexpr const char* kQueryProducts = "queries/products";
inline constexpr const char* kLargest = "ranges/largest";
inline constexpr const char* kMagnitudes = "ranges/magnitudes";
inline constexpr const char* kColumnSums = "columns/sums";
inline constexpr const char* kMapBlocks = "map/block_tokens";
inline constexpr const char* kRows = "rows/attention";
// Stored if the model has a tokenizer. Older profiles do not have it, and can still be resumed.
inline constexpr const char* kTextBytes = "text/bytes";
inline constexpr const char* kTextEnds = "text/ends";
}  // namespace name

/// Magnitudes are counted in eight bins an octave from 2^-18 to 2^14. The first bin also has what
/// is smaller, zeros among it, and the last one what is larger or no number.
inline constexpr int kMagnitudeBins = 256, kBinsAnOctave = 8, kLowestOctave = -18;
inline std::int64_t magnitude_bin(float value) {
  constexpr std::int64_t lowest = (127 + kLowestOctave) * kBinsAnOctave;
  const auto place = std::int64_t{(std::bit_cast<std::uint32_t>(value) & 0x7fffffff) >> 20};
  return std::clamp<std::int64_t>(place - lowest, 0, kMagnitudeBins - 1);
}
/// Where a bin begins; the first one at 0. It ends where the next one begins.
inline double magnitude_of_bin(std::int64_t bin) {
  if (bin == 0) return 0;
  return std::ldexp(1 + static_cast<double>(bin % kBinsAnOctave) / kBinsAnOctave,
                    static_cast<int>(bin / kBinsAnOctave) + kLowestOctave);
}
/// The first axis of both arrays.
enum class RangeOf : std::uint8_t { keys, values, queries };

/// The name of a map, such as "map/mean/3" or "map/max/3". Level 0 is the finest.
std::string map_name(bool maximum, int level);
inline constexpr int kMapLevels = 10;  // 512 blocks a side, 256, … 1: the most there are
/// The name of a raw array, such as "raw/query/12". `what` is query, key or value.
std::string raw_name(const char* what, std::int64_t layer);

/// The settings of window scores.
struct WindowKind {
  std::int64_t window = 16, kernel = 7;
  Pooling pooling = Pooling::average;
  std::string label() const;
};

/// A rule that keeps a part of the prompt, and is judged by the attention that it keeps.
struct KeepRule {
  enum class Method : std::uint8_t { streaming, snapkv, dynamickv, h2o, lagkv };
  Method method = Method::streaming;
  kernels::Proximity proximity;    // streaming
  std::size_t kind = 0;            // snapkv, dynamickv: index in window_kinds
  std::int64_t budget = 0;         // snapkv, dynamickv, h2o: tokens kept
  std::int64_t lag = 0, keep = 0;  // lagkv
  kernels::LagVariant variant = kernels::LagVariant::lag;  // lagkv
  std::string label;  // as an inline policy: "lagkv:sink=16,lag=128,ratio=1/4,variant=lag"
};

/// What is captured, and with which settings. A part that is switched off has no arrays.
struct CaptureSettings {
  bool lazy = true;         // proximal masses and log-sum-exps, last rows and first decode step
  bool js = true;           // divergence of all pairs of layers
  bool scores = true;       // how the largest window scores are spread over layers
  bool kept = true;         // attention kept by selections, at the first decode step
  bool norms = true;        // norms of keys and values
  bool next = true;         // the best next tokens
  bool columns = true;      // column sums, for the first map_samples
  bool maps = true;         // pyramids, last rows and masks of what is kept, for as many
  bool heatmap = false;     // masses along the prompt's rows
  bool argmax = false;      // the best next token at every position
  bool agreement = false;   // next token under proximal attention alone
  bool heads = false;       // how far back each KV head attends
  bool queries = false;     // means and magnitudes of queries before RoPE
  bool covariance = false;  // means of the products of their channels
  bool values = false;      // how alike the values of layers are
  bool ranges = false;      // magnitudes of keys, values and queries
  bool keep_qkv = false, keep_scores = false;

  std::vector<kernels::Proximity> proximities;
  std::int64_t mass_rows = 32, js_rows = 16;
  std::vector<std::int64_t> budgets = {64, 96, 128, 256, 512, 1024};
  std::vector<WindowKind> window_kinds = {{}, {16, 7, Pooling::maximum}};
  std::int64_t sink = 16;
  std::vector<std::int64_t> lags = {64, 128, 256, 512, 1024};
  std::vector<std::string> ratios = {"1/2", "1/4", "1/6", "1/8"};
  std::vector<std::int64_t> agreement_counts;
  std::int64_t map_samples = 2;
  /// How maps and rows of attention are stored: u8 to be looked at, f16 and f32 exactly.
  Type map_type = Type::u8;
  std::vector<std::int64_t> keep_layers;
  std::int64_t skip_queries = 4;  // first tokens whose queries are left out of their statistics
  std::int64_t generated = 1;     // tokens whose masses are taken, the first decode step included

  /// The windows of the default grid: initial 4 and 16, recent 64 to 4080.
  CaptureSettings();
  /// Error(usage) for settings that make no sense for the model.
  void check(const model::Config& config) const;
  /// Whether generated tokens are run.
  bool decodes() const { return lazy || kept; }
  /// Whether keys and values of the prompt are needed after the prefill.
  bool keeps_caches() const { return decodes() || values; }
  /// Whether what is captured for the viewer is as exact as it was computed.
  bool exact_maps() const { return map_type != Type::u8; }
  /// Blocks a side of a map's finest level, at most.
  std::int64_t map_blocks() const { return exact_maps() ? 512 : 256; }
  /// How many rows of attention are held for all layers until the prefill has ended.
  std::int64_t held_rows() const;
  std::int64_t last_rows()
      const;  // rows that are computed in a layer, for held_rows() and mass_rows
  std::vector<KeepRule> selections() const;
  std::string json() const;  // canonical
};

/// Error(usage) names the option if it has no value, or the same value twice.
template <class T>
void require_distinct(const char* option, std::vector<T> values) {
  std::sort(values.begin(), values.end());
  if (values.empty() || std::adjacent_find(values.begin(), values.end()) != values.end())
    fail(ErrorCode::usage, option, " needs one or more values, each once");
}

std::vector<AxisTable> axis_tables(const CaptureSettings& settings);
std::vector<Description> descriptions(const CaptureSettings& settings, const model::Config& config);
/// Describes the arrays of token texts, which no setting switches off.
std::vector<Description> text_descriptions();
/// Bytes of those arrays of one sample whose size is fixed.
std::int64_t statistics_bytes(const CaptureSettings& settings, const model::Config& config);

}  // namespace kvatlas::profile
