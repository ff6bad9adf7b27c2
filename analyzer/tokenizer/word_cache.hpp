// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "analyzer/tokenizer/vocabulary.hpp"

namespace kvatlas::model {

/// Words that were encoded before: bounded, thread-safe, in shards so that threads seldom wait.
class WordCache {
 public:
  /// Appends the ids of `word`, which encode(word, ids) finds if they are not known yet.
  template <class Encode>
  void encode(std::string_view word, std::vector<std::int32_t>& ids, Encode encode) {
    if (word.size() > kMostBytes) return encode(word, ids);
    std::string key(word);
    Shard& shard = shards_[std::hash<std::string>{}(key) % shards_.size()];
    {
      const std::lock_guard hold(shard.lock);
      if (const auto found = shard.words.find(key); found != shard.words.end()) {
        ids.insert(ids.end(), found->second.begin(), found->second.end());
        return;
      }
    }
    std::vector<std::int32_t> encoded;
    encode(word, encoded);
    ids.insert(ids.end(), encoded.begin(), encoded.end());
    const std::lock_guard hold(shard.lock);
    if (shard.words.size() >= kMostWords) shard.words.clear();
    shard.words.emplace(std::move(key), std::move(encoded));
  }

 private:
  static constexpr std::size_t kMostBytes = 64;    // longer words seldom come back
  static constexpr std::size_t kMostWords = 8192;  // in each shard

  struct Shard {
    std::mutex lock;
    std::unordered_map<std::string, std::vector<std::int32_t>> words;
  };
  std::array<Shard, 16> shards_;
};

/// Cuts text before each "▁" that follows something else, where the vocabulary has "▁" and no token
/// that spans such a place: then nothing is ever joined across it, and words can be encoded one by
/// one.
class WordCutter {
 public:
  explicit WordCutter(const Vocabulary& vocabulary);

  template <class Word>
  void for_each(std::string_view text, Word word) const {
    std::size_t begin = 0;
    while (cuts_ && begin < text.size()) {
      const std::size_t end = next_cut(text, begin);
      if (end == text.npos) break;
      word(text.substr(begin, end - begin));
      begin = end;
    }
    if (begin < text.size()) word(text.substr(begin));
  }

 private:
  /// The first place after `from` where a word begins.
  static std::size_t next_cut(std::string_view text, std::size_t from);

  bool cuts_;
};

}  // namespace kvatlas::model
