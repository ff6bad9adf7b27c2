// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace kvatlas {

/// Any text, escaped so that it can stand between tags or in an attribute of HTML or XML. Control
/// bytes, which neither of them allows, become '?'. Bytes that are not UTF-8 are left as they are.
std::string markup_text(std::string_view text);

}  // namespace kvatlas
