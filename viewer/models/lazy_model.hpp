// SPDX-License-Identifier: Apache-2.0
// The numbers of SimLayerKV's screen: which layers are lazy at a threshold, and what that saves.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "analyzer/profile/profile.hpp"
#include "calibrate/policy/policy.hpp"
#include "calibrate/rules/rules.hpp"
#include "viewer/models/chart.hpp"
#include "viewer/models/measured.hpp"

namespace kvatlas::viewer {

/// Which masses are read from the profile.
struct LazyChoices {
  calibrate::Proximity keep = calibrate::SimLayerKv{}.keep;
  calibrate::SimLayerKv::Identify identify = calibrate::SimLayerKv{}.identify;
  std::int64_t w_last = calibrate::SimLayerKv{}.w_last;
};

struct LazyModel {
  LazyChoices choices;
  std::vector<std::size_t> positions;  // positions of the samples in the profile
  std::vector<std::string> names;      // their ids
  /// Number of samples that are too short to trim, or have no masses.
  std::size_t left_out = 0;
  calibrate::SampleMasses masses;
  /// Masses of the generated tokens; empty if they were not captured.
  calibrate::StepMasses steps;
  calibrate::CacheShape shape;
  ScoreCurve scores;  // scores that a document holds for thresholds; empty without one
};

/// Reads the samples at `positions`. `section` is the section "simlayerkv" of a document, or null.
/// Error(usage) for masses that were not captured says how to capture them.
LazyModel read_lazy_model(const profile::Reader& profile, const std::vector<std::size_t>& positions,
                          const LazyChoices& choices, const nlohmann::json& section);

/// The settings that can change without anything being read again.
struct LazySettings {
  double threshold = calibrate::SimLayerKv{}.threshold;
  bool per_head = false, fixed = false;
  double share = 0.5;       // share of the samples from which a layer is lazy in the static view
  double near_half = 0.15;  // layers whose lazy rate is nearer to the share are flagged
  std::int64_t length = 0;  // prompt length for which savings are given
};

/// How much of each layer is lazy at every threshold. It stays the same while the chosen threshold
/// moves.
struct LazyCurve {
  /// Every hundredth, those at which scores were measured, and the one asked for, ascending.
  std::vector<double> thresholds;
  /// The share of each layer that is lazy: [threshold][layer].
  std::vector<std::vector<double>> shares;
};
LazyCurve lazy_curve(const LazyModel& model, const LazySettings& settings,
                     std::optional<double> also = {});

/// Which layers are lazy at the settings. It is quick, for nothing is drawn.
struct LazyDecisions {
  double lazy_layers = 0;  // number of lazy layers, in the mean over the samples
  /// [layer]: the share of it that is lazy by the choice, which may count KV heads or be fixed.
  std::vector<double> shares;
  std::vector<double> rates;  // [layer]
  calibrate::StaticView fixed;
  std::vector<std::size_t> near_half;  // layers whose rate is near the share
};
LazyDecisions lazy_decisions(const LazyModel& model, const LazySettings& settings);

struct LazyView : LazyDecisions {
  /// [layer][KV head]; only if `per_head` is set.
  std::vector<std::vector<double>> head_rates = {};
  std::vector<double> consistency = {};  // [layer]; empty if it is not known
  calibrate::Savings savings = {};
  Chart layers = {};  // masses, with the threshold as a handle
  Chart strip = {};   // lazy rate and consistency of each layer, with the share as a handle
  Chart heads = {};   // lazy rates of KV heads; only if `per_head` is set
  Chart scores = {};  // score and cache kept over the threshold, with the same handle
};
/// `curve` is that of the same model and settings.
LazyView lazy_view(const LazyModel& model, const LazySettings& settings, const LazyCurve& curve);
inline LazyView lazy_view(const LazyModel& model, const LazySettings& settings) {
  return lazy_view(model, settings, lazy_curve(model, settings));
}

}  // namespace kvatlas::viewer
