// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "analyzer/config/config.hpp"

namespace kvatlas::model {

/// Rotation angles: position p turns dimension pair i by p * inverse_frequency[i]; cos and sin are
/// multiplied by `scale`.
struct RopeFrequencies {
  std::vector<float> inverse_frequency;  // [rotary_dim / 2]
  float scale = 1.0f;
};

/// What YaRN multiplies by where a model states this weight: 1 if contexts are not stretched.
double yarn_mscale(const Rope& rope, double weight);

/// The frequencies for a sequence of `n_tokens` tokens: the dynamic and longrope kinds depend on
/// the length, the others do not. `context_length` is the model's, for longrope's factor. Rounded
/// to float32 at the steps where the reference software rounds, so that angles agree at long
/// positions.
RopeFrequencies rope_frequencies(const Rope& rope, std::int64_t rotary_dim,
                                 std::int64_t context_length, std::int64_t n_tokens);

}  // namespace kvatlas::model
