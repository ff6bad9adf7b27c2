// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace kvatlas {

/// How a selection's scores are spread over neighbouring tokens.
enum class Pooling : std::uint8_t { average, maximum };

}  // namespace kvatlas
