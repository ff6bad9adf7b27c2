// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace kvatlas::viewer {

/// The lines of both texts in order: "- " begins those of the first alone, "+ " those of the second
/// alone, "  " those of both. Empty if the texts are equal. Long texts are compared as a whole.
std::string line_diff(std::string_view before, std::string_view after);

}  // namespace kvatlas::viewer
