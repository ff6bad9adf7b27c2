// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace kvatlas::viewer {

/// The lines of both texts in order. A line that only the first has begins with "- ", one that only
/// the second has with "+ ", and one that both have with two spaces. Empty if the texts are equal.
/// Very long texts are compared as a whole.
std::string line_diff(std::string_view before, std::string_view after);

}  // namespace kvatlas::viewer
