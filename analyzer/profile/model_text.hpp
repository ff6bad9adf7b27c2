// SPDX-License-Identifier: Apache-2.0
// What people are told of a model whose layers are not all alike.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace kvatlas::profile {

/// "4", or "2 with attention, which are 1, 3".
std::string layers_text(std::int64_t layers, const std::vector<std::int64_t>& numbers);

/// What is special about the cache, such as "one latent of 512 numbers for all heads of a layer,
/// 576 numbers a token". Empty: nothing is. `values`: as in Header::cached_values.
std::string cache_text(const std::vector<std::int64_t>& values, std::int64_t latent_rank);

}  // namespace kvatlas::profile
