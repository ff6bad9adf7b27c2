// SPDX-License-Identifier: Apache-2.0
// What the tokens of a prompt read, for axes and hovering.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "analyzer/profile/profile.hpp"

namespace kvatlas::viewer {

/// The bytes of each token of a sample, as the tokenizer has them: a token may end inside
/// a character. Empty if the profile has none. Error(unreadable) for offsets that cannot be.
std::vector<std::string> read_token_texts(const profile::Reader& profile, std::size_t position);

/// A token on one line, valid UTF-8: line ends and tabs as signs, other control characters, signs
/// of writing direction and what is no UTF-8 as escapes, "\xE2".
std::string shown_text(std::string_view text);

}  // namespace kvatlas::viewer
