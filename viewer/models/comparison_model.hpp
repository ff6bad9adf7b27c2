// SPDX-License-Identifier: Apache-2.0
// Policies beside each other: what each keeps and what it scores, the front of the best, and which
// layers each of them trims. All of it is what documents say.
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

/// A policy that was measured, or a setting of a search.
struct ComparedPolicy {
  std::string name;     // "SimLayerKV, static"
  std::string method;   // "SimLayerKV": points of one method are one series
  std::string section;  // whose choices it is a setting of; empty: a control or baseline
  std::string setting;  // "threshold 0.882"
  double kept_share = kNoNumber;
  Interval score;
  std::optional<Measured> measured;  // none: of a search alone
  bool needs_training = false;
  /// The setting, to be chosen: threshold, delta or budget.
  double value = kNoNumber;
  int lag_candidate = -1;
  /// Of a search's front: the document's position, and the point's in its front.
  struct FrontPoint {
    std::size_t document, point;
  };
  std::optional<FrontPoint> front_point = {};
  bool chosen = false;  // by the search
};

struct ComparisonModel {
  std::vector<ComparedPolicy> policies;  // as calibrated, then controls and baselines
  std::vector<ComparedPolicy> searched;  // all settings that have a score
  std::vector<std::string> tasks;        // that scores are known by
  Interval full;
  double full_bytes_per_token = kNoNumber;
  std::int64_t layers = 0;
  double most_share = kNoNumber;   // of the cache, that a search was allowed,
  double least_score = kNoNumber;  // and the score that it had to keep
  struct Strip {
    std::string policy, unit;    // "kept share"
    std::vector<double> values;  // [layer]; NaN: the layer is not told apart
  };
  std::vector<Strip> strips;  // share of what each layer keeps of the cache, or of its own greatest
};
/// Error(usage) without a document that has scores or layers.
ComparisonModel comparison_model(std::span<const calibrate::Document> documents);

struct ComparisonSettings {
  std::int64_t length = 0;      // prompt tokens that bytes are given at
  std::optional<double> share;  // of the cache, that policies are compared at
  Choices::Front front = {};    // the point that was chosen
};

struct ComparisonView {
  struct At {
    const ComparedPolicy* policy = nullptr;  // of the model's `searched`
  };
  std::vector<At> at_equal_bytes;  // by method: the best score within `share`
  /// points[series].points[i] of the chart are these policies.
  std::vector<std::vector<const ComparedPolicy*>> series;
  Chart pareto;  // its table has every policy
  Chart equal;   // at equal bytes; empty without `share`
  Chart strips;  // a row a policy, a column a layer
};
ComparisonView comparison_view(const ComparisonModel& model, const ComparisonSettings& settings);

/// The choices with this policy's setting in them; as they were for a control or baseline.
Choices with_policy(Choices choices, const ComparedPolicy& policy);
/// Likewise with a point of a front as the policy; `documents` are those of the model. Without a
/// profile the settings of screens stay as they are. Error(unreadable) for a point that is no
/// policy.
Choices with_front(Choices choices, const ComparedPolicy& policy,
                   std::span<const calibrate::Document> documents, const profile::Header* header);
/// What a document's policies keep of each layer.
std::vector<ComparisonModel::Strip> strips_of(const calibrate::Document& document);

}  // namespace kvatlas::viewer
