// SPDX-License-Identifier: Apache-2.0
// The numbers of PoD's screen: how alike the layers attend, which blocks a similarity joins, and
// what these save.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "analyzer/profile/profile.hpp"
#include "calibrate/policy/policy.hpp"
#include "calibrate/rules/read_evidence.hpp"
#include "viewer/models/chart.hpp"
#include "viewer/models/measured.hpp"

namespace kvatlas::viewer {

struct BlocksModel {
  /// Positions in the profile of the samples that have divergences.
  std::vector<std::size_t> positions;
  calibrate::Similarity similarity;  // one matrix for each query head
  calibrate::Similarity of_kv_heads;
  calibrate::CacheShape shape;
  /// What every hundredth of delta gives, with KV heads grouped and with query heads grouped.
  std::vector<calibrate::PodPoint> by_kv_head, by_query_head;
  ScoreCurve scores;  // scores that a document holds for values of delta
};
/// `section` is the section "pod" of a document, or null. Error(usage) if the samples have no
/// divergences.
BlocksModel read_blocks_model(const profile::Reader& profile,
                              const std::vector<std::size_t>& positions,
                              const nlohmann::json& section);

struct BlocksSettings {
  double delta = calibrate::Pod{}.delta;
  bool per_query_head = false;
  bool show_divergence = false;  // the matrices show 1 minus the similarity
  calibrate::Proximity proximal = calibrate::Pod{}.proximal;
  /// Tokens of the prompt, and tokens generated after it.
  std::int64_t length = 0, new_tokens = 128;
  double memory_bytes = 24.0 * (1LL << 30);  // memory that the greatest batch must fit into
  /// Share of the cache to save, for which a delta is looked up.
  std::optional<double> wanted_saving;
};

/// Which layers the settings join to blocks, and what that saves. It is quick, for nothing is
/// drawn.
struct BlockDecisions {
  calibrate::Blocks blocks;  // of query heads
  calibrate::PodPoint point;
  double saved = 0;  // share of the cache that is saved at `length` tokens
};
BlockDecisions block_decisions(const BlocksModel& model, const BlocksSettings& settings);

struct BlocksView : BlockDecisions {
  std::int64_t full_batch = 0, batch = 0;
  std::optional<double> delta_for_saving = {};
  Chart matrices = {};  // a matrix for each head, with its blocks outlined
  Chart sweep = {};     // what every delta saves
  Chart counts = {};    // number of blocks of each head
};
BlocksView blocks_view(const BlocksModel& model, const BlocksSettings& settings);

/// The matrix of one head enlarged, with every pair of layers in its table. `head` counts KV heads
/// or query heads, whichever the settings group.
Chart matrix_chart(const BlocksModel& model, const BlocksSettings& settings, std::int64_t head);

/// The gate's evidence: log-sum-exps of the last rows. There is one for each sample, layer, head
/// and row, so they are read on request only, and drawing them takes longer than following a drag
/// allows.
struct GateModel {
  std::vector<calibrate::GateSums> samples;
};
GateModel read_gate_model(const profile::Reader& profile, const std::vector<std::size_t>& positions,
                          calibrate::Proximity proximal);
struct GateView {
  double skipped = kNoNumber;  // share of distant attention skipped at tau
  Chart chart;                 // the share skipped at every tau
};
GateView gate_view(const GateModel& model, const calibrate::Blocks& blocks, double tau);
/// The same view with another tau, which is one of the hundredths that the chart shows.
GateView at_tau(GateView view, double tau);

}  // namespace kvatlas::viewer
