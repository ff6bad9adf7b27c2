// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "analyzer/capture/engine.hpp"

namespace kvatlas::capture {

/// Tokens whose values are held at a time, of all layers.
inline constexpr std::int64_t kComparedTokens = 256;

/// How alike the values of every two layers are: the cosine of their values of one token, in the
/// mean over the first `tokens` of the sequence. [KV head][layer][layer], 1 on the diagonal.
std::vector<float> value_cosines(const Sequence& sequence, const model::Config& config,
                                 std::int64_t tokens);

}  // namespace kvatlas::capture
