// SPDX-License-Identifier: Apache-2.0
#include "base/json_text.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "base/error.hpp"
#include "base/mapped_file.hpp"

namespace kvatlas {

std::string read_text_file(const std::filesystem::path& path, std::size_t most_bytes) {
  const MappedFile file = MappedFile::open(path);
  const auto bytes = file.bytes();
  if (bytes.size() > most_bytes)
    fail(ErrorCode::unreadable, quoted(path.string(), 400), " has ", bytes.size(),
         " bytes, expected at most ", most_bytes);
  std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  file.require_intact();
  return text;
}

nlohmann::json count_json(double count) {
  if (!std::isfinite(count)) return nullptr;
  // Sizes are found by shares and ratios, which round.
  const double whole = std::round(count);
  if (std::abs(count - whole) > 1e-3 || std::abs(whole) > 0x1p53) return count;
  return static_cast<std::int64_t>(whole);
}

namespace {

/// How deep arrays and objects nest, at most; exact for JSON, and never less than what a parser
/// would build before it finds an error.
int nesting_depth(std::string_view text) {
  int depth = 0, deepest = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      deepest = std::max(deepest, ++depth);
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return deepest;
}

}  // namespace

nlohmann::json parse_json(std::string_view text, int most_depth) {
  // Looked at before parsing: a parser's callback for each value would double its time.
  if (nesting_depth(text) > most_depth)
    fail(ErrorCode::unreadable, "JSON nested deeper than ", most_depth, " levels");
  try {
    return nlohmann::json::parse(text.begin(), text.end());
  } catch (const nlohmann::json::exception& error) {
    const auto* place = dynamic_cast<const nlohmann::json::parse_error*>(&error);
    if (place && place->byte > text.size()) fail_cut("not valid JSON: ", json_complaint(error));
    fail(ErrorCode::unreadable, "not valid JSON: ", json_complaint(error));
  }
}

std::string json_complaint(const nlohmann::json::exception& error) {
  const std::string_view text = error.what();
  const auto bracket = text.find("] ");
  return printable(bracket == text.npos ? text : text.substr(bracket + 2), 300);
}

}  // namespace kvatlas
