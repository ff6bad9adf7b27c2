// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

namespace kvatlas::calibrate {

/// KL(full || other) in nats of the next token's distributions, from logits; never below 0. Shares
/// that float32 cannot hold count as 0. NaN where a row has no distribution, infinity where only
/// the other one excludes a token. Error: 2e-6 + 1e-5 of the value, the same bits for any number of
/// threads.
double kl_divergence(std::span<const float> full, std::span<const float> other);

}  // namespace kvatlas::calibrate
