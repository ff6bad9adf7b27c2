// SPDX-License-Identifier: Apache-2.0
// SimLayerKV's screen: which layers are lazy at a threshold, and what that saves.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "analyzer/profile/profile.hpp"
#include "calibrate/policy/policy.hpp"
#include "calibrate/rules/rules.hpp"
#include "viewer/models/chart.hpp"
#include "viewer/models/document_numbers.hpp"

namespace kvatlas::viewer {

/// What decides which arrays are read: a change reads anew.
struct LazyChoices {
  calibrate::Proximity keep = calibrate::SimLayerKv{}.keep;
  calibrate::SimLayerKv::Identify identify = calibrate::SimLayerKv{}.identify;
  std::int64_t w_last = calibrate::SimLayerKv{}.w_last;
};

struct LazyModel {
  LazyChoices choices;
  std::vector<std::size_t> positions;  // of the samples, in the profile
  std::vector<std::string> names;      // of the samples
  std::size_t left_out = 0;            // samples too short to trim, or not captured
  calibrate::SampleMasses masses;
  calibrate::StepMasses steps;  // of the generated tokens; empty if not captured
  calibrate::CacheShape shape;
  ScoreCurve scores;  // of a document; empty without one
};

/// Of the samples at `positions`. Error(usage) for what was not captured, saying how it is.
/// `section`: "simlayerkv" of a document, or null.
LazyModel read_lazy_model(const profile::Reader& profile, const std::vector<std::size_t>& positions,
                          const LazyChoices& choices, const nlohmann::json& section);

/// What moves while one looks.
struct LazySettings {
  double threshold = calibrate::SimLayerKv{}.threshold;
  bool per_head = false, fixed = false;
  double share = 0.5;       // lazy rate from which the static view counts a layer as lazy
  double near_half = 0.15;  // lazy rates so near to the share are flagged
  std::int64_t length = 0;  // prompt tokens that savings are given at
};

/// Lazy layers over the threshold. It does not change while the threshold moves.
struct LazyCurve {
  std::vector<double> thresholds, lazy;  // hundredths, and where scores were measured; ascending
};
LazyCurve lazy_curve(const LazyModel& model, const LazySettings& settings);

/// What the settings make of the layers.
struct LazyDecisions {
  double lazy_layers = 0;     // in the mean over samples
  std::vector<double> rates;  // [layer]
  calibrate::StaticView fixed;
  std::vector<std::size_t> near_half;  // layers whose rate is near the share
};
LazyDecisions lazy_decisions(const LazyModel& model, const LazySettings& settings);

struct LazyView : LazyDecisions {
  std::vector<std::vector<double>> head_rates = {};  // [layer][KV head]; only per_head
  std::vector<double> consistency = {};              // [layer]; empty if unknown
  calibrate::Savings savings = {};
  Chart layers = {};  // masses, with the threshold as a handle
  Chart strip = {};   // lazy rate and consistency of each layer, with the share as a handle
  Chart heads = {};   // lazy rates of KV heads; only per_head
  Chart scores = {};  // score and cache kept over the threshold, with the same handle
};
/// `curve`: of the same model and settings.
LazyView lazy_view(const LazyModel& model, const LazySettings& settings, const LazyCurve& curve);
inline LazyView lazy_view(const LazyModel& model, const LazySettings& settings) {
  return lazy_view(model, settings, lazy_curve(model, settings));
}

}  // namespace kvatlas::viewer
