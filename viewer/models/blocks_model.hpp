// SPDX-License-Identifier: Apache-2.0
// PoD's screen: how alike the layers attend, the blocks that a similarity joins, what they save.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "analyzer/profile/profile.hpp"
#include "calibrate/policy/policy.hpp"
#include "calibrate/rules/read_evidence.hpp"
#include "viewer/models/chart.hpp"
#include "viewer/models/document_numbers.hpp"

namespace kvatlas::viewer {

struct BlocksModel {
  std::vector<std::size_t> positions;  // of the samples that have divergences
  calibrate::Similarity similarity;    // of query heads
  calibrate::Similarity of_kv_heads;
  calibrate::CacheShape shape;
  std::vector<calibrate::PodPoint> by_kv_head, by_query_head;  // at every hundredth of delta
  ScoreCurve scores;                                           // of a document
};
/// Error(usage) if the samples have no divergences. `section`: "pod" of a document, or null.
BlocksModel read_blocks_model(const profile::Reader& profile,
                              const std::vector<std::size_t>& positions,
                              const nlohmann::json& section);

struct BlocksSettings {
  double delta = calibrate::Pod{}.delta;
  bool per_query_head = false;
  bool show_divergence = false;  // in the matrices, instead of the similarity
  calibrate::Proximity proximal = calibrate::Pod{}.proximal;
  std::int64_t length = 0, new_tokens = 128;  // prompt and generated tokens
  double memory_bytes = 24.0 * (1LL << 30);   // that the greatest batch is for
  std::optional<double> wanted_saving;        // share of the cache, to read off a delta
};

/// What the settings make of the layers.
struct BlockDecisions {
  calibrate::Blocks blocks;  // of query heads
  calibrate::PodPoint point;
  double saved = 0;  // share of the cache at `length`
};
BlockDecisions block_decisions(const BlocksModel& model, const BlocksSettings& settings);

struct BlocksView : BlockDecisions {
  std::int64_t full_batch = 0, batch = 0;
  std::optional<double> delta_for_saving = {};
  Chart matrices = {};  // a matrix a head, blocks outlined
  Chart sweep = {};     // over all delta
  Chart counts = {};    // blocks a head
};
BlocksView blocks_view(const BlocksModel& model, const BlocksSettings& settings);

/// One head enlarged, with every pair of layers in the table. `head`: of what is grouped.
Chart matrix_chart(const BlocksModel& model, const BlocksSettings& settings, std::int64_t head);

/// The gate's evidence: log-sum-exps of the last rows. It is as large as samples x layers x heads x
/// rows, so it is read on request, and its chart takes longer than a move of delta may.
struct GateModel {
  std::vector<calibrate::GateSums> samples;
};
GateModel read_gate_model(const profile::Reader& profile, const std::vector<std::size_t>& positions,
                          calibrate::Proximity proximal);
struct GateView {
  double skipped = kNoNumber;  // at tau
  Chart chart;                 // share skipped over tau
};
GateView gate_view(const GateModel& model, const calibrate::Blocks& blocks, double tau);

}  // namespace kvatlas::viewer
