// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace kvatlas {

/// Prints what a profile was taken of, how it was taken, its samples, and what was captured.
void inspect_profile(const std::string& path, bool as_json);

}  // namespace kvatlas
