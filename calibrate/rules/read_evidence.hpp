// SPDX-License-Identifier: Apache-2.0
// What a profile says of its samples, read for the rules: by calibration and by the viewer alike.
// Samples of which an array was not captured are passed over. What the whole profile lacks is
// Error(usage) that says how 'kvatlas profile' takes it; arrays of other sizes than the model's are
// Error(unreadable).
#pragma once

#include <Eigen/Core>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "analyzer/profile/profile.hpp"
#include "calibrate/policy/policy.hpp"
#include "calibrate/rules/rules.hpp"

namespace kvatlas::calibrate {

/// Error(unreadable) for a model that has none, or KV heads that do not divide the query heads.
CacheShape cache_shape(const profile::Header& header);
/// Error(usage), naming the --capture that brings it, if an array was not captured of any sample.
void require_captured(const profile::Reader& profile, const char* array, const char* part);
/// The positions of samples of more tokens than that.
std::vector<std::size_t> longer_than(const profile::Reader& profile,
                                     const std::vector<std::size_t>& positions,
                                     std::int64_t n_tokens);

/// The row of these initial and recent tokens in the profile's grid. Error(usage) lists the grid.
std::int64_t proximity_row(const profile::Reader& profile, Proximity keep);
/// The same for a window, a kernel and a pooling.
std::int64_t window_kind_row(const profile::Reader& profile, const WindowBudget& select);

/// Numbers of one sample, a row after the other as the profile stores them.
using StoredRows = Eigen::Array<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
inline std::span<const float> values_of(const StoredRows& rows) {
  return {rows.data(), static_cast<std::size_t>(rows.size())};
}
/// What an array says of these initial and recent tokens in one sample: a row for each layer, or
/// for each head of each layer.
enum class RowsOf : std::uint8_t { layers, heads };
StoredRows read_proximity(const profile::Reader& profile, std::size_t position, const char* array,
                          Proximity keep, RowsOf rows);

/// The attention of one head in the last rows of the prompt: [row, key], 0 where a row cannot see
/// the key.
StoredRows read_attention(const profile::Reader& profile, std::size_t position, std::int64_t layer,
                          std::int64_t head);

/// What a selection of the profile keeps of the attention: [layer][KV head]. Empty if it was not
/// captured of the sample.
Masses read_kept_masses(const profile::Reader& profile, std::size_t position,
                        std::int64_t selection);
/// Whether a selection, named by its label, keeps each token of the prompt: [token]. Empty if it
/// was not captured of the sample.
std::vector<bool> read_kept_tokens(const profile::Reader& profile, std::size_t position,
                                   const std::string& selection, std::int64_t layer,
                                   std::int64_t kv_head);

/// The masses that SimLayerKV decides by.
struct MassesOfSamples : SampleMasses {
  std::vector<std::size_t> positions;  // of the samples, in the profile
};
MassesOfSamples read_masses(const profile::Reader& profile,
                            const std::vector<std::size_t>& positions, const SimLayerKv& policy);
/// The masses of the generated tokens of these samples; empty if they were not captured.
StepMasses read_steps(const profile::Reader& profile, const std::vector<std::size_t>& positions,
                      Proximity keep);

/// How alike layers attend, in the mean over the samples that say so.
struct SimilarityOfSamples : Similarity {
  std::vector<std::size_t> positions;  // none: there is no such sample, and no similarity
};
SimilarityOfSamples read_similarity(const profile::Reader& profile,
                                    const std::vector<std::size_t>& positions);

/// The gate's evidence in one sample.
struct GateSums {
  StoredRows proximal, distant;  // log-sum-exps; a row of these is a head of a layer
  std::int64_t layers = 0, heads = 0;
  GateRows view() const {
    return {values_of(proximal), values_of(distant), layers, heads, proximal.cols()};
  }
};
GateSums read_gate_sums(const profile::Reader& profile, std::size_t position, Proximity keep);

/// Where the largest window scores lie, of samples of more tokens than the window.
struct CountsOfSamples {
  WindowBudget select;  // whose scores, and how many tokens a layer keeps in the mean
  std::vector<std::size_t> positions;             // of the samples, in the profile
  std::vector<std::int64_t> before;               // prompt tokens before the window: [sample]
  std::vector<std::vector<std::int64_t>> counts;  // [sample][layer]

  /// What the layers get for one of the samples.
  LayerBudgets budgets(std::size_t sample, double r_max) const {
    return layer_budgets(counts[sample], select.budget - select.window, before[sample], r_max);
  }
};
CountsOfSamples read_counts(const profile::Reader& profile,
                            const std::vector<std::size_t>& positions, const WindowBudget& select);

}  // namespace kvatlas::calibrate
