// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace kvatlas {

/// Text between tags or in an attribute of HTML or XML, whatever it holds: control bytes, which
/// neither allows, become '?'. What is no UTF-8 stays so.
std::string markup_text(std::string_view text);

}  // namespace kvatlas
