// SPDX-License-Identifier: Apache-2.0
// What the KV cache of a model costs, from config.json or a GGUF header alone. Any architecture is
// read, whether the engine runs it or not: sizes have few names, and layers few kinds.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "analyzer/config/config.hpp"

namespace kvatlas::model {

/// What one layer holds of the tokens that it has read.
struct CachedLayer {
  enum class Kind : std::uint8_t {
    full,    // keys and values of all tokens
    window,  // of the last `tokens`
    chunk,   // of the tokens since the last multiple of `tokens`
    latent,  // one vector a token, which all heads share (MLA)
    state,   // nothing of single tokens: a state of fixed size, or nothing at all
    shared   // it reads the cache of an earlier layer
  };
  Kind kind = Kind::full;
  std::int64_t kv_heads = 0, key_dim = 0, value_dim = 0;
  std::int64_t tokens = 0;  // of a window or chunk
  /// Numbers of a state, however long the sequence is; 0: there is none, or the file does not say.
  std::int64_t state_values = 0;

  /// Numbers that a token takes.
  std::int64_t values_per_token() const;
};
const char* cached_kind_name(CachedLayer::Kind kind);

struct CacheCard {
  std::string file, format, name, architecture;
  std::vector<CachedLayer> layers;
  std::int64_t heads = 0, hidden_size = 0, vocab_size = 0, context_length = 0;
  std::int64_t experts = 0, active_experts = 0;
  std::int64_t weight_bytes = 0;   // 0: the weights are not there
  std::vector<std::string> notes;  // what the figures leave out or assume, a sentence each

  /// Numbers of the states of all layers, which no byte count includes; 0: none, or not known.
  std::int64_t state_values() const;
};

/// From a config.json, a folder with one, or a GGUF file. Error(unreadable) if sizes are missing or
/// senseless.
CacheCard read_cache_card(const std::filesystem::path& path);

/// [layer]: how many numbers a token takes in the cache of a model that runs. Empty: everywhere a
/// key and a value a KV head.
std::vector<std::int64_t> cached_values(const Config& config);

}  // namespace kvatlas::model
