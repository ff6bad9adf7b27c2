// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace kvatlas {

/// The program's exit status where what was asked for is not met: a verdict, no failure (those are
/// exit_status of error.hpp).
inline constexpr int kExitNotMet = 4;

}  // namespace kvatlas
