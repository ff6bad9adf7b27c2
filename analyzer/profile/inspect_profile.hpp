// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace kvatlas {

/// Prints a profile's card: of what, how taken, which samples, what was captured.
void inspect_profile(const std::string& path, bool as_json);

}  // namespace kvatlas
