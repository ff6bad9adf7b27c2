// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace kvatlas::calibrate {

/// Whether the file begins as a policy document does, as JSON.
bool is_policy_file(const std::string& path);

/// Prints what a policy document says, or the document itself.
void inspect_policy(const std::string& path, bool as_json);

}  // namespace kvatlas::calibrate
