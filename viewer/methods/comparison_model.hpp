// SPDX-License-Identifier: Apache-2.0
// Policies compared with each other: what each of them keeps, how it scores, which are the best,
// and which layers each of them trims. All numbers come from documents.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "calibrate/policy/policy.hpp"
#include "viewer/models/chart.hpp"
#include "viewer/models/choices.hpp"
#include "viewer/models/measured.hpp"

namespace kvatlas::viewer {

/// A policy that was measured, or one of the settings that a search tried.
struct ComparedPolicy {
  std::string name;     // "SimLayerKV, static"
  std::string method;   // "SimLayerKV": points of one method are one series
  std::string section;  // the method whose setting it is; empty for a control or a baseline
  std::string setting;  // "threshold 0.882"
  double kept_share = kNoNumber;
  Estimate score;
  std::string prompts;  // that the score is of: "10 prompts, held out"; empty if not known
  std::optional<Measured> measured;  // none if only a search has tried it
  bool needs_training = false;
  /// The value that choosing this policy sets: a threshold, a delta or a budget.
  double value = kNoNumber;
  /// The setting of LagKV's sweep, or the point of the curve of number formats, that choosing it
  /// sets.
  int candidate = -1;
  /// If it is a point of a search's front: the position of its document, and its position in the
  /// front.
  struct FrontPoint {
    std::size_t document, point;
  };
  std::optional<FrontPoint> front_point = {};
  bool chosen = false;  // the search has chosen it
};

struct ComparisonModel {
  std::string task;  // that the scores are of; empty: of all
  /// Those that were calibrated first, then controls and baselines.
  std::vector<ComparedPolicy> policies;
  std::vector<ComparedPolicy> searched;  // all settings of searches that have a score
  std::vector<std::string> tasks;        // tasks for which there are scores of their own
  Estimate full;
  calibrate::CacheShape shape;     // of the model that all of them are for
  double most_share = kNoNumber;   // share of the cache that a search was allowed to keep
  double least_score = kNoNumber;  // score that it had to reach
  struct Strip {
    std::string policy, unit;  // "share of samples in which the layer stays full"
    std::string word;          // the unit in a word, behind the policy's name
    /// [layer]; NaN if the document does not tell this layer apart.
    std::vector<double> values;
  };
  /// What each layer keeps, as a share of the layer's cache or of the greatest among the layers.
  std::vector<Strip> strips;
};
/// If a task is named, the scores are those of its prompts alone, and what searches tried is left
/// out. Error(usage) if no document has such scores, or says anything of layers.
ComparisonModel comparison_model(std::span<const calibrate::Document> documents,
                                 const std::string& task = {});

/// What a policy's score is held against: the share of the cache that it keeps, or of the cache's
/// bytes that a decode step reads. Some policies keep everything and read little.
enum class CostAxis : std::uint8_t { kept, read };

struct ComparisonSettings {
  std::int64_t length = 0;      // prompt length for which bytes are given
  std::optional<double> share;  // the share at which policies are compared
  Choices::Front front = {};    // the point that was chosen
  CostAxis cost = CostAxis::kept;
};

struct ComparisonView {
  struct At {
    const ComparedPolicy* policy = nullptr;  // an element of the model's `searched`
  };
  /// For each method the best score that costs no more than `share`.
  std::vector<At> at_equal_bytes;
  /// The policy behind each point of the chart, in the order of points[series].points.
  std::vector<std::vector<const ComparedPolicy*>> series;
  Chart pareto;  // its table has every policy
  Chart equal;   // the best of each method at equal bytes; empty without `share`
  Chart strips;  // a row for each policy, a column for each layer
  Chart turns;   // score of each question of a conversation; empty if no document says them
  Chart memory;  // bytes held over generated tokens; empty if no document says them
};
ComparisonView comparison_view(const ComparisonModel& model, const ComparisonSettings& settings);

/// The choices with this policy's setting in them. A control or a baseline changes nothing.
Choices with_policy(Choices choices, const ComparedPolicy& policy);
/// The same for a point of a front, which then is the policy as it stands; `documents` are those
/// that the model was read from. Without a profile the settings of the screens stay as they are.
/// Error(unreadable) if the point is no policy.
Choices with_front(Choices choices, const ComparedPolicy& policy,
                   std::span<const calibrate::Document> documents, const profile::Header* header);
/// How much of each layer's cache the policies of a document keep.
std::vector<ComparisonModel::Strip> strips_of(const calibrate::Document& document);

}  // namespace kvatlas::viewer
