// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace kvatlas::viewer {

/// How well `text` matches `pattern`: its letters must occur in `text` in the same order, in upper
/// or lower case. A greater number is a better match; none means that a letter is missing. Letters
/// at the beginnings of words and letters in a row count more.
std::optional<int> fuzzy_score(std::string_view pattern, std::string_view text);

/// The text with ASCII letters in lower case.
std::string lowered(std::string_view text);

}  // namespace kvatlas::viewer
