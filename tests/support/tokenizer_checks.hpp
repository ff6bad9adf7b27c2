// SPDX-License-Identifier: Apache-2.0
// What holds for every tokenizer.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "analyzer/tokenizer/tokenizer.hpp"

namespace kvatlas::testing_support {

/// Whether a text is whole UTF-8 characters, told without the code under test.
inline bool is_whole_utf8(const std::string& text) {
  for (std::size_t at = 0; at < text.size();) {
    const auto byte = static_cast<unsigned char>(text[at]);
    const std::size_t length = byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
    if ((byte >= 0x80 && byte < 0xC2) || byte > 0xF4 || at + length > text.size()) return false;
    for (std::size_t k = 1; k < length; ++k) {
      if ((static_cast<unsigned char>(text[at + k]) & 0xC0) != 0x80) return false;
    }
    at += length;
  }
  return true;
}

/// Decoding id by id gives the text of decoding all at once, in whole characters.
inline void expect_streaming(const std::shared_ptr<const model::Tokenizer>& tokenizer,
                             const std::vector<std::int64_t>& ids, bool skip_special = false) {
  model::StreamingDecoder decoder(tokenizer, skip_special);
  std::string streamed;
  for (const auto id : ids) {
    const std::string part = decoder.push(id);
    EXPECT_TRUE(is_whole_utf8(part)) << part;
    streamed += part;
  }
  streamed += decoder.finish();
  EXPECT_EQ(streamed, tokenizer->decode(ids, skip_special));
}

}  // namespace kvatlas::testing_support
