// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "analyzer/tokenizer/token_model.hpp"
#include "analyzer/tokenizer/vocabulary.hpp"
#include "analyzer/tokenizer/word_cache.hpp"

namespace kvatlas::model {

/// Byte pair encoding by a list of merges, as in tokenizer.json and the GGUF kind gpt2.
class Bpe : public TokenModel {
 public:
  struct Merge {
    std::int32_t left, right;
  };
  struct Options {
    bool byte_fallback = false;  // a character without a token becomes its bytes "<0x..>"
    bool ignore_merges = false;  // a piece that is a token is that token, whatever the merges say
    bool fuse_unknown = false;   // neighbouring unknown characters share one token
    std::optional<std::int32_t> unknown;  // without it unknown characters vanish
  };

  /// `merges` lists the best first. Error(unreadable) if one does not make a token.
  Bpe(std::shared_ptr<const Vocabulary> vocabulary, const std::vector<Merge>& merges,
      Options options);

  void encode(std::string_view piece, std::vector<std::int32_t>& ids) const override;

 private:
  struct Slot {
    std::uint64_t pair = 0;
    std::int32_t rank = 0;
    std::int32_t id = -1;  // negative if the slot is free
  };
  std::size_t slot_of(std::uint64_t pair) const;
  void encode_word(std::string_view word, std::vector<std::int32_t>& ids) const;

  std::shared_ptr<const Vocabulary> vocabulary_;
  Options options_;
  std::vector<std::int32_t> byte_ids_;
  std::vector<Slot> slots_;  // a hash table with open addressing; their number is a power of two
  WordCutter cutter_;
  mutable WordCache cache_;
};

}  // namespace kvatlas::model
