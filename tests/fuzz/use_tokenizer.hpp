// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <memory>
#include <string_view>
#include <vector>

#include "analyzer/tokenizer/tokenizer.hpp"

namespace kvatlas::model {

/// Encodes a few short texts, decodes what comes out and the first ids, at once and one by one.
inline void use_tokenizer(const std::shared_ptr<const Tokenizer>& tokenizer, std::string_view own) {
  const std::string_view texts[] = {
      " Hello  world, it's 1234\n\t[X] <s>a</s>",
      "\xE4\xBD\xA0\xE2\x96\x81\xEF\xAC\x81 e\xCC\x81\xF0\x9F\x98\x80 \xE4\xBD not UTF-8 \xFF",
      "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!", own.substr(0, 256)};
  std::vector<std::int64_t> ids;
  for (std::int64_t id = 0; id < std::min<std::int64_t>(tokenizer->vocab_size(), 64); ++id) {
    ids.push_back(id);
  }
  for (const std::string_view text : texts) {
    for (const bool special : {false, true}) {
      tokenizer->decode(ids, special);
      StreamingDecoder decoder(tokenizer, special);
      for (const auto id : ids) decoder.push(id);
      decoder.finish();
      ids = tokenizer->encode(text, {.add_special = special, .parse_special = special});
    }
  }
}

}  // namespace kvatlas::model
