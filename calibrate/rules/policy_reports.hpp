// SPDX-License-Identifier: Apache-2.0
// What a policy document says beside the policies themselves: the model and the profile that it is
// of, and what a profile alone tells about a setting. For calibration and for the viewer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "analyzer/profile/profile.hpp"
#include "calibrate/policy/policy.hpp"
#include "calibrate/rules/rules.hpp"

namespace kvatlas::calibrate {

ModelInfo model_info(const profile::Header& header);
/// A hash of model, settings and prompts, which decide all that a profile holds: 16 hex digits. It
/// reads the tokens of all samples.
std::string profile_fingerprint(const profile::Reader& profile);
/// Of the samples at these positions; seed and the tool's version are left as they are.
Provenance provenance_of(const profile::Reader& profile, const std::vector<std::size_t>& positions);

// How numbers are written in documents: null for what JSON has no number for.
nlohmann::json number_json(double value);
nlohmann::json estimate_json(const Estimate& estimate);

/// What a profile says of SimLayerKV.
struct LazyEvidence {
  const SampleMasses& masses;
  const StepMasses& steps;  // of the generated tokens; empty if not captured
  CacheShape shape;
  Proximity keep;
};
/// Members of the section: "lazy_rates", "static", "per_head", "opposite", "savings" at the prompt
/// lengths, "consistency" (if more than one generated token is known), "samples".
nlohmann::json lazy_report(const LazyEvidence& evidence, double threshold, const LazyChoice& choice,
                           const std::vector<std::int64_t>& lengths);

}  // namespace kvatlas::calibrate
