// SPDX-License-Identifier: Apache-2.0
// The texts of a prompt's tokens, for axes and for what is shown under the pointer.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "analyzer/profile/profile.hpp"

namespace kvatlas::viewer {

/// The bytes of each token of a sample. As tokenizers cut them, a token may end inside a character.
/// Empty if the profile stores none. Error(unreadable) if the stored offsets do not fit the bytes.
std::vector<std::string> read_token_texts(const profile::Reader& profile, std::size_t position);

/// A token as one line of valid UTF-8. Line ends and tabs become visible signs; other control
/// characters, marks of writing direction and bytes that are no UTF-8 become escapes such as
/// "\xE2".
std::string shown_text(std::string_view text);
/// The texts of read_token_texts() as they are shown.
std::vector<std::string> read_shown_texts(const profile::Reader& profile, std::size_t position);

}  // namespace kvatlas::viewer
