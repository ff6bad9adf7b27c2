// SPDX-License-Identifier: Apache-2.0
#include "analyzer/tokenizer/word_cache.hpp"

#include <algorithm>

#include "base/unicode_text.hpp"

namespace kvatlas::model {

WordCutter::WordCutter(const Vocabulary& vocabulary) {
  const auto spans = [](const std::string& text) { return next_cut(text, 0) != text.npos; };
  cuts_ = vocabulary.find(kSpaceSymbol).has_value() &&
          std::none_of(vocabulary.texts().begin(), vocabulary.texts().end(), spans);
}

std::size_t WordCutter::next_cut(std::string_view text, std::size_t from) {
  for (auto at = text.find(kSpaceSymbol, from); at != text.npos;
       at = text.find(kSpaceSymbol, at + kSpaceSymbol.size())) {
    if (at > from && !text.substr(0, at).ends_with(kSpaceSymbol)) return at;
  }
  return text.npos;
}

}  // namespace kvatlas::model
