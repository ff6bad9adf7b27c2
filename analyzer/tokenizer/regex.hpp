// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace kvatlas::model {

/// A pattern of a tokenizer file, in the spelling of Oniguruma (which those files are written for),
/// run by PCRE2 with its JIT. Thread-safe. A pattern that PCRE2 would read differently is an
/// Error(unsupported); one that takes too long on a text is an Error(resource).
class Regex {
 public:
  explicit Regex(std::string_view pattern);
  static Regex literal(std::string_view text);

  /// Calls found(begin, end) for each match, left to right, none overlapping. A pattern finds
  /// nothing in an empty text or one that is not UTF-8.
  void for_each(std::string_view text,
                const std::function<void(std::size_t, std::size_t)>& found) const;

  /// The text with `content` in place of each match; Error(resource) beyond `most_bytes`.
  std::string replaced(std::string_view text, std::string_view content,
                       std::size_t most_bytes) const;

  const std::string& pattern() const { return pattern_; }

 private:
  struct Compiled;
  Regex() = default;
  std::string pattern_;
  std::shared_ptr<const Compiled> compiled_;  // null if pattern_ is a literal
};

}  // namespace kvatlas::model
