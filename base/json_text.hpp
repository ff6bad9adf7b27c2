// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

namespace kvatlas {

/// A text file's whole content; Error(unreadable) if it is larger than `most_bytes`.
std::string read_text_file(const std::filesystem::path& path, std::size_t most_bytes);

/// JSON text as a tree. Error(unreadable) if it is not JSON or nests deeper than `most_depth`.
nlohmann::json parse_json(std::string_view text, int most_depth = 32);

/// A tree as text, in one line, or with `indent` a member a line. Bytes that are no UTF-8 become
/// U+FFFD; with `ascii`, what is beyond ASCII is escaped.
template <class Json>
std::string json_text(const Json& value, int indent = -1, bool ascii = false) {
  return value.dump(indent, ' ', ascii, Json::error_handler_t::replace);
}

/// A number of bytes or tokens, whole where it is; a mean need not be. What is no number is null.
nlohmann::json count_json(double count);

/// The message of an exception of nlohmann::json, without the library's prefix.
std::string json_complaint(const nlohmann::json::exception& error);

}  // namespace kvatlas
