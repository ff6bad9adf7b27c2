// SPDX-License-Identifier: Apache-2.0
#include "analyzer/tokenizer/sentencepiece_normalizer.hpp"

#include <cstring>

#include "analyzer/tokenizer/text_growth.hpp"
#include "base/error.hpp"
#include "base/unicode_text.hpp"

namespace kvatlas::model {

namespace {

// The fields of a unit of the double array.
bool has_leaf(std::uint32_t unit) { return ((unit >> 8) & 1) == 1; }
std::uint32_t value(std::uint32_t unit) { return unit & 0x7FFFFFFF; }
std::uint32_t label(std::uint32_t unit) { return unit & (0x80000000 | 0xFF); }
std::uint32_t offset(std::uint32_t unit) { return (unit >> 10) << ((unit & (1u << 9)) >> 6); }

}  // namespace

CharsMap::CharsMap(std::string_view bytes) {
  if (bytes.empty()) return;
  std::uint32_t trie_bytes = 0;
  if (bytes.size() >= sizeof trie_bytes) std::memcpy(&trie_bytes, bytes.data(), sizeof trie_bytes);
  const std::size_t rest = bytes.size() - std::min(bytes.size(), sizeof trie_bytes);
  if (trie_bytes == 0 || trie_bytes > rest || trie_bytes % sizeof(std::uint32_t) != 0) {
    fail(ErrorCode::unreadable, "precompiled_charsmap of ", bytes.size(),
         " bytes announces a trie of ", trie_bytes, " bytes");
  }
  units_.resize(trie_bytes / sizeof(std::uint32_t));
  std::memcpy(units_.data(), bytes.data() + sizeof trie_bytes, trie_bytes);
  texts_ = bytes.substr(sizeof trie_bytes + trie_bytes);
}

CharsMap::Replacement CharsMap::longest(std::string_view text, std::size_t at) const {
  Replacement found;
  if (units_.empty()) return found;
  std::size_t node = offset(units_[0]);
  for (std::size_t depth = 0; at + depth < text.size(); ++depth) {
    const auto byte = static_cast<unsigned char>(text[at + depth]);
    node ^= byte;
    if (node >= units_.size() || label(units_[node]) != byte) break;
    const std::uint32_t unit = units_[node];
    node ^= offset(unit);
    if (node >= units_.size()) break;
    if (!has_leaf(unit)) continue;
    const std::size_t begin = value(units_[node]);
    const std::size_t end = texts_.find('\0', begin);
    if (begin < texts_.size() && end != texts_.npos) {
      found = {depth + 1, std::string_view(texts_).substr(begin, end - begin)};
    }
  }
  return found;
}

Normalizer::Step sentencepiece_step(SentencePieceNormalizing rules) {
  return [rules = std::make_shared<const SentencePieceNormalizing>(std::move(rules))](
             const std::string& text) {
    /// What the next characters become.
    const auto next = [&](std::size_t at) -> CharsMap::Replacement {
      if (!rules->kept.empty()) {
        if (const auto kept = rules->kept.longest(text, at); kept.length > 0) {
          return {kept.length, std::string_view(text).substr(at, kept.length)};
        }
      }
      if (const auto found = rules->replacements.longest(text, at); found.length > 0) return found;
      const std::size_t length = read_utf8(text, at).length;
      return {length, std::string_view(text).substr(at, length)};
    };
    const std::string_view space = rules->escape_spaces ? kSpaceSymbol : " ";

    std::size_t at = 0;
    while (rules->squeeze_spaces && at < text.size()) {
      const auto part = next(at);
      if (part.text != " ") break;
      at += part.length;
    }
    std::string out;
    if (at == text.size()) return out;
    out.reserve(text.size() + text.size() / 4);
    const std::size_t most = most_bytes(text.size());
    if (rules->prefix_space) out += space;
    bool after_space = rules->squeeze_spaces;
    while (at < text.size()) {
      auto [length, part] = next(at);
      while (after_space && part.starts_with(' ')) part.remove_prefix(1);
      for (const char c : part) {
        if (c == ' ') {
          out += space;
        } else {
          out += c;
        }
      }
      require_size(out.size(), most, "normalizer");
      if (!part.empty()) after_space = rules->squeeze_spaces && part.ends_with(' ');
      at += length;
    }
    while (rules->squeeze_spaces && out.ends_with(space)) out.resize(out.size() - space.size());
    return out;
  };
}

void add_sentencepiece_decoder(TokenDecoder& decoder, const SentencePieceNormalizing& rules) {
  decoder.add(decoding::replace(Regex::literal(kSpaceSymbol), " "));
  const bool drops_space = rules.escape_spaces && (rules.prefix_space || rules.squeeze_spaces);
  if (drops_space && rules.squeeze_spaces) {
    // A space of every token, until there is text.
    decoder.add([](TokenDecoder::Text& text) {
      for (std::size_t k = 0; text.at_start && k < text.tokens.size(); ++k) {
        if (text.tokens[k].starts_with(' ')) text.tokens[k].erase(0, 1);
        if (!text.tokens[k].empty()) break;
      }
    });
  }
  decoder.add(decoding::byte_fallback());
  decoder.add(decoding::fuse());
  if (drops_space && !rules.squeeze_spaces) decoder.add(decoding::strip(" ", 1, 0));
}

}  // namespace kvatlas::model
