// SPDX-License-Identifier: Apache-2.0
// The long texts that needles are hidden in.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace kvatlas::data {

/// A text without end. It comes in pieces of a few tokens each, which are words of a bundled text
/// or short sentences.
class Haystack {
 public:
  /// Five short sentences again and again; which they are, and their order, the seed chooses.
  static Haystack repeat(std::uint64_t seed);
  /// The bundled prose or source code, from a paragraph or an unindented line that the seed
  /// chooses; after its end comes its beginning.
  static Haystack prose(std::uint64_t seed);
  static Haystack code(std::uint64_t seed);
  static Haystack named(std::string_view name, std::uint64_t seed);  // "repeat" or "prose"

  /// The text of the first pieces.
  std::string first(std::int64_t pieces) const;

 private:
  explicit Haystack(std::string_view text) : text_(text) {}

  std::shared_ptr<const std::string> made_;  // holds text_ where it is no bundled text
  std::string_view text_;
  std::vector<std::size_t> ends_;  // of the pieces in text_
  std::size_t start_ = 0;          // the piece that comes first
};

/// The places behind which a sentence ends, in bytes. The end of the text counts as one.
std::vector<std::size_t> sentence_ends(std::string_view text);

struct Needle {
  double depth;  // 0 to 1
  std::string text;
};

/// The haystack with each needle behind the sentence (or before the first) whose end is nearest to
/// its depth, as a share of the haystack's bytes. Needles at the same place stay in their order. A
/// haystack that breaks off within a sentence gets "..." there.
std::string hide(std::string haystack, std::vector<Needle> needles);

}  // namespace kvatlas::data
