// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

namespace kvatlas::kernels::cuda {

/// The driver's words for why no CUDA device can be used; no value if one can.
std::optional<std::string> device_problem();

}  // namespace kvatlas::kernels::cuda
