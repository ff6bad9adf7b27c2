// SPDX-License-Identifier: Apache-2.0
// The numbers of the front page: what was profiled, and each policy at its present setting.
#pragma once

#include <array>
#include <cstddef>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "calibrate/policy/policy.hpp"
#include "viewer/models/advice.hpp"
#include "viewer/models/method_models.hpp"

namespace kvatlas::viewer {

struct Fact {
  std::string name, value;
};

/// What the cards of all methods are made of.
struct Evidence : MethodModels {
  calibrate::CacheShape shape;
  OrReason<calibrate::HeadKv> head_budgets;
  OrReason<SweepModel> sweep;
  OrReason<PrecisionModel> precision;
};

/// What a document holds of a policy's score, and the policy that it was measured of.
struct MeasuredPart {
  std::optional<Measured> measured;
  calibrate::Part part;
};

struct OverviewModel {
  std::vector<Fact> facts;       // about the model
  std::vector<Fact> provenance;  // about the profile
  Evidence evidence;
  std::vector<MeasuredPart> known;  // of each row of method_rows()
};

/// When the file was last written. When the profile was begun is not stored.
Fact file_date(const std::filesystem::path& path);

/// `methods` are the models of the same choices and documents. The tokens of all samples are read
/// for the profile's fingerprint.
OverviewModel read_overview_model(const profile::Reader& profile, MethodModels methods,
                                  std::span<const calibrate::Document> documents);

struct PolicyCard {
  std::string section, title;  // "simlayerkv", "SimLayerKV"
  std::string screen;          // the screen on which it is set
  std::string missing;         // why there is nothing to show; then all that follows is empty
  std::string setting;
  double kept_share = kNoNumber, kept_bytes = kNoNumber;
  std::string kept;  // "41.2 % of the cache, 9.3 MiB of 22.5 MiB at 1024 tokens"
  /// The score of exactly this setting, if a document holds it.
  std::optional<Measured> measured;
  std::string score;  // the change of the score, or how it can be measured
  Advice advice;
  Chart chart;
};

struct OverviewView {
  std::vector<PolicyCard> cards;
  std::vector<Fact> cache;  // bytes of the whole cache at the chosen length
  Table table;              // a row for each card
};
OverviewView overview_view(const OverviewModel& model, const Choices& choices);

}  // namespace kvatlas::viewer
