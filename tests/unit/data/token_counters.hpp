// SPDX-License-Identifier: Apache-2.0
// Stand-ins for tokenizers, from coarse to fine.
#pragma once

#include <cstdint>
#include <sstream>
#include <string>
#include <string_view>

#include "data/tasks.hpp"

namespace kvatlas::data {

inline std::int64_t count_words(std::string_view text) {
  std::istringstream in{std::string(text)};
  std::int64_t words = 0;
  for (std::string word; in >> word;) ++words;
  return words;
}

inline std::int64_t count_quads(std::string_view text) {
  return (static_cast<std::int64_t>(text.size()) + 3) / 4;
}

inline std::int64_t count_bytes(std::string_view text) {
  return static_cast<std::int64_t>(text.size());
}

/// The same of prompts, as text.
inline CountTokens of_prompts(std::int64_t (*count)(std::string_view)) {
  return [count](const Prompt& prompt) { return count(prompt.as_text()); };
}

/// How often `part` stands in `text`.
inline int occurrences(std::string_view text, std::string_view part) {
  int found = 0;
  for (std::size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++found;
  return found;
}

}  // namespace kvatlas::data
