// SPDX-License-Identifier: Apache-2.0
// What a policy document holds besides the policies: the model and the profile that it was made
// from, and how figures are written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "analyzer/profile/profile.hpp"
#include "calibrate/policy/method.hpp"
#include "calibrate/policy/policy.hpp"
#include "calibrate/rules/rules.hpp"

namespace kvatlas::calibrate {

ModelInfo model_info(const profile::Header& header);
/// Error(usage) with the reason if the cache of the profile's model cannot follow the method.
void require_fit(const Method& method, const profile::Header& header);
/// The windows of all layers, as ModelInfo has them: none if no layer has one.
std::vector<std::int64_t> own_windows(const std::vector<std::int64_t>& of_layers);
/// A hash in 16 hex digits of model, settings and prompts, which together decide all that a profile
/// holds. The tokens of all samples are read for it.
std::string profile_fingerprint(const profile::Reader& profile);
/// What a document calls a prompt that no seed made: a hash of its tokens in 16 hex digits.
std::string prompt_hash(std::span<const std::int64_t> tokens);
/// Describes the samples at these positions. Seed and tool version keep their defaults.
Provenance provenance_of(const profile::Reader& profile, const std::vector<std::size_t>& positions);

// Numbers as documents hold them; infinities and NaN become null.
nlohmann::json number_json(double value);
nlohmann::json estimate_json(const Estimate& estimate);
nlohmann::json divergence_json(const Divergence& divergence);
// The way back; NaN for what is no number. Of a document whose divergence has an interval for its
// mean, which holds for nothing, the mean alone is read.
Divergence divergence_from(const nlohmann::json& json);
double number_of(const nlohmann::json& json);
Estimate estimate_of(const nlohmann::json& json);

}  // namespace kvatlas::calibrate
