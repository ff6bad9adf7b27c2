// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace kvatlas::viewer {

/// How well the letters of `pattern` are found in `text` in their order, whatever their case; the
/// more the better, nothing if they are not. Beginnings of words and runs of letters count more.
std::optional<int> fuzzy_score(std::string_view pattern, std::string_view text);

/// ASCII letters in lower case, all else as it is.
std::string lowered(std::string_view text);

}  // namespace kvatlas::viewer
