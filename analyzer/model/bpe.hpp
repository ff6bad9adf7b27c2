// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "analyzer/model/token_model.hpp"
#include "analyzer/model/vocabulary.hpp"

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

  /// `merges` best first; each must join to a token: Error(unreadable).
  Bpe(std::shared_ptr<const Vocabulary> vocabulary, const std::vector<Merge>& merges,
      Options options);

  void encode(std::string_view piece, std::vector<std::int32_t>& ids) const override;

 private:
  struct Slot {
    std::uint64_t pair = 0;
    std::int32_t rank = 0;
    std::int32_t id = -1;  // negative: free
  };
  /// Words that were encoded before; bounded, in shards so that threads seldom wait.
  struct Cache {
    std::mutex lock;
    std::unordered_map<std::string, std::vector<std::int32_t>> words;
  };

  std::size_t slot_of(std::uint64_t pair) const;
  void encode_uncached(std::string_view piece, std::vector<std::int32_t>& ids) const;

  std::shared_ptr<const Vocabulary> vocabulary_;
  Options options_;
  std::vector<std::int32_t> byte_ids_;
  std::vector<Slot> slots_;  // open addressing, a power of two of them
  mutable std::array<Cache, 16> caches_;
};

}  // namespace kvatlas::model
