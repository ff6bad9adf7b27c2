// SPDX-License-Identifier: Apache-2.0
#include "analyzer/tokenizer/added_tokens.hpp"

#include <algorithm>

#include "base/unicode_text.hpp"

namespace kvatlas::model {

namespace {

/// Where the character before `at` begins; at > 0.
std::size_t character_before(std::string_view text, std::size_t at) {
  do --at;
  while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80);
  return at;
}

bool word_touches(std::string_view text, std::size_t begin, std::size_t end) {
  return (begin > 0 && is_word(read_utf8(text, character_before(text, begin)).code)) ||
         (end < text.size() && is_word(read_utf8(text, end).code));
}

std::size_t over_spaces_left(std::string_view text, std::size_t at, std::size_t stop) {
  while (at > stop) {
    const std::size_t before = character_before(text, at);
    if (!is_space(read_utf8(text, before).code)) break;
    at = before;
  }
  return at;
}

std::size_t over_spaces_right(std::string_view text, std::size_t at) {
  while (at < text.size()) {
    const Utf8Char c = read_utf8(text, at);
    if (!is_space(c.code)) break;
    at += c.length;
  }
  return at;
}

}  // namespace

AddedTokens::AddedTokens(std::vector<AddedToken> tokens) : tokens_(std::move(tokens)) {
  std::vector<std::pair<std::string, std::int32_t>> texts;
  for (std::size_t k = 0; k < tokens_.size(); ++k) {
    texts.emplace_back(tokens_[k].text, static_cast<std::int32_t>(k));
  }
  texts_ = LiteralSet(std::move(texts));
}

void AddedTokens::cut(std::string_view text, bool parse_special,
                      const std::function<void(std::size_t, std::size_t)>& text_part,
                      const std::function<void(std::int32_t)>& token) const {
  std::size_t done = 0;
  for (std::size_t at = 0; at < text.size() && !texts_.empty();) {
    const auto found = texts_.longest(text, at);
    if (found.length == 0) {
      ++at;
      continue;
    }
    const AddedToken& match = tokens_[found.number];
    std::size_t begin = at;
    std::size_t end = at + found.length;
    at = end;
    if (match.special && !parse_special) continue;
    if (match.single_word && word_touches(text, begin, end)) continue;
    if (match.strip_left) begin = std::max(over_spaces_left(text, begin, done), done);
    if (match.strip_right) end = over_spaces_right(text, end);
    if (begin > done) text_part(done, begin);
    if (begin < end) token(match.id);  // else the token before it took its spaces
    done = end;  // the search goes on at `at`: spaces taken along can be a token too
  }
  if (done < text.size()) text_part(done, text.size());
}

}  // namespace kvatlas::model
