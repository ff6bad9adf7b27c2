// SPDX-License-Identifier: Apache-2.0
// The front page: what the profile is of, and each policy at its present setting.
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

struct OverviewModel {
  std::vector<Fact> facts;       // of the model
  std::vector<Fact> provenance;  // of the profile
  calibrate::CacheShape shape;
  MethodModels methods;
  OrReason<SweepModel> sweep;
  std::array<std::optional<Measured>, 4> measured;  // of these policies, in a document
  std::array<nlohmann::json, 4> known;              // settings that were measured
};

/// When the file was last written, which is not when the profile was begun: that is not stored.
Fact file_date(const std::filesystem::path& path);

/// It reads the profile's tokens too. `methods`: the models of the same choices and documents.
OverviewModel read_overview_model(const profile::Reader& profile, MethodModels methods,
                                  std::span<const calibrate::Document> documents);
/// It reads these models as well.
OverviewModel read_overview_model(const profile::Reader& profile,
                                  const std::vector<std::size_t>& positions, const Choices& choices,
                                  std::span<const calibrate::Document> documents);

struct PolicyCard {
  std::string section, title;  // "simlayerkv", "SimLayerKV"
  std::string screen;          // that opens it
  std::string missing;         // why there is nothing to show; all below is then empty
  std::string setting;
  double kept_share = kNoNumber, kept_bytes = kNoNumber;
  std::string kept;  // "41.2 % of the cache, 9.3 MiB of 22.5 MiB at 1024 tokens"
  /// Of exactly this setting, if a document says it.
  std::optional<Measured> measured;
  std::string score;  // "no change of the score …", or how it is measured
  Advice advice;
  Chart chart;
};

struct OverviewView {
  std::vector<PolicyCard> cards;
  std::vector<Fact> cache;  // bytes at the chosen length
  Table table;              // a row a card
};
OverviewView overview_view(const OverviewModel& model, const Choices& choices);

}  // namespace kvatlas::viewer
