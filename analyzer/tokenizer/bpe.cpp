// SPDX-License-Identifier: Apache-2.0
#include "analyzer/tokenizer/bpe.hpp"

#include <algorithm>
#include <bit>

#include "analyzer/tokenizer/bpe_merge.hpp"
#include "base/unicode_text.hpp"

namespace kvatlas::model {

namespace {
std::uint64_t pair_of(std::int32_t left, std::int32_t right) {
  return (std::uint64_t{static_cast<std::uint32_t>(left)} << 32) |
         static_cast<std::uint32_t>(right);
}
}  // namespace

Bpe::Bpe(std::shared_ptr<const Vocabulary> vocabulary, const std::vector<Merge>& merges,
         Options options)
    : vocabulary_(std::move(vocabulary)),
      options_(options),
      slots_(std::bit_ceil(2 * merges.size() + 2)),
      cutter_(*vocabulary_) {
  if (options_.byte_fallback) byte_ids_ = byte_tokens(*vocabulary_);
  for (std::size_t rank = 0; rank < merges.size(); ++rank) {
    const auto& [left, right] = merges[rank];
    const std::string joined = vocabulary_->text(left) + vocabulary_->text(right);
    const auto id = vocabulary_->find(joined);
    if (!id) {
      fail(ErrorCode::unreadable, "merge ", rank, " makes ", quoted(joined),
           ", which is not in the vocabulary");
    }
    const std::uint64_t pair = pair_of(left, right);
    slots_[slot_of(pair)] = {pair, static_cast<std::int32_t>(rank), *id};
  }
}

std::size_t Bpe::slot_of(std::uint64_t pair) const {
  const std::size_t mask = slots_.size() - 1;
  std::size_t at = (pair * 0x9E3779B97F4A7C15u) >> 32;
  while (slots_[at & mask].id >= 0 && slots_[at & mask].pair != pair) ++at;
  return at & mask;
}

void Bpe::encode(std::string_view piece, std::vector<std::int32_t>& ids) const {
  if (options_.ignore_merges) {
    if (const auto id = vocabulary_->find(piece)) {
      ids.push_back(*id);
      return;
    }
  }
  cutter_.for_each(piece, [&](std::string_view word) {
    cache_.encode(word, ids, [this](std::string_view uncached, std::vector<std::int32_t>& out) {
      encode_word(uncached, out);
    });
  });
}

void Bpe::encode_word(std::string_view word, std::vector<std::int32_t>& ids) const {
  require_bpe_length(word);
  std::vector<BpeSymbol> symbols;
  symbols.reserve(word.size());
  const auto add = [&](std::int32_t id, std::size_t begin, std::size_t length) {
    symbols.push_back({static_cast<std::uint32_t>(begin), static_cast<std::uint32_t>(length), id});
  };
  // An unknown character waits here, for the next one may be fused with it.
  std::size_t unknown_begin = 0, unknown_length = 0;
  const auto flush_unknown = [&] {
    if (unknown_length > 0) add(*options_.unknown, unknown_begin, unknown_length);
    unknown_length = 0;
  };
  for (std::size_t at = 0; at < word.size();) {
    const std::size_t length = read_utf8(word, at).length;
    const std::string_view text = word.substr(at, length);
    const auto has_byte = [&](char c) { return byte_ids_[static_cast<unsigned char>(c)] >= 0; };
    if (const auto id = vocabulary_->find(text)) {
      flush_unknown();
      add(*id, at, length);
    } else if (options_.byte_fallback && std::all_of(text.begin(), text.end(), has_byte)) {
      // As in tokenizers, an unknown character that waits comes after these bytes.
      for (std::size_t k = 0; k < length; ++k) {
        add(byte_ids_[static_cast<unsigned char>(text[k])], at + k, 1);
      }
    } else if (options_.unknown) {
      if (!options_.fuse_unknown) flush_unknown();
      if (unknown_length == 0) unknown_begin = at;
      unknown_length += length;
    }
    at += length;
  }
  flush_unknown();
  if (symbols.empty()) return;

  link_symbols(symbols);
  merge_symbols(symbols, [&](const BpeSymbol& left, const BpeSymbol& right) -> BpeJoin {
    const Slot& found = slots_[slot_of(pair_of(left.id, right.id))];
    return {static_cast<double>(found.rank), found.id};
  });
  for (std::int32_t k = 0; k >= 0; k = symbols[k].next) {
    ids.push_back(symbols[k].id);
  }
}

}  // namespace kvatlas::model
