// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "analyzer/tokenizer/literal_set.hpp"
#include "analyzer/tokenizer/normalizer.hpp"
#include "analyzer/tokenizer/token_decoder.hpp"

namespace kvatlas::model {

/// SentencePiece's compiled table of replacements (precompiled_charsmap): a double-array trie of
/// the texts to replace, and what replaces them.
class CharsMap {
 public:
  CharsMap() = default;
  /// Error(unreadable) if the sizes do not fit. What lies inside is checked as it is used.
  explicit CharsMap(std::string_view bytes);

  struct Replacement {
    std::size_t length = 0;  // of the text that is replaced; 0 if none is
    std::string_view text;
  };
  /// The replacement of the longest text in the table that begins at `at`.
  Replacement longest(std::string_view text, std::size_t at) const;

 private:
  std::vector<std::uint32_t> units_;
  std::string texts_;  // each ends with a zero byte
};

/// How SentencePiece prepares a text.
struct SentencePieceNormalizing {
  CharsMap replacements;
  LiteralSet kept;              // texts that are copied unchanged: the user-defined pieces
  bool prefix_space = true;     // a space before the text
  bool squeeze_spaces = false;  // none at the ends, no two in a row
  bool escape_spaces = true;    // a space is written "▁"
};

Normalizer::Step sentencepiece_step(SentencePieceNormalizing rules);

/// The steps that undo it: they restore spaces and bytes, and drop the prefix space.
void add_sentencepiece_decoder(TokenDecoder& decoder, const SentencePieceNormalizing& rules);

}  // namespace kvatlas::model
