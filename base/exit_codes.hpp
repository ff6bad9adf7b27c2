// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace kvatlas {

/// The program's exit status if it ran well and its verdict is "not met". The exit statuses of
/// failures are those of exit_status() in error.hpp.
inline constexpr int kExitNotMet = 4;

}  // namespace kvatlas
