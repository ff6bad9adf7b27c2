// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

namespace kvatlas::kernels::cuda {

/// Why no CUDA device can be used, in the driver's words; nothing if one can.
std::optional<std::string> device_problem();

}  // namespace kvatlas::kernels::cuda
