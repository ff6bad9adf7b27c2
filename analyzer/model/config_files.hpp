// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "analyzer/model/config.hpp"

namespace kvatlas::model {

class GgufFile;

/// The most that a size in a checkpoint may be; larger ones are taken for damage.
struct Limits {
  static constexpr std::int64_t layers = 4096;
  static constexpr std::int64_t heads = 1 << 14;
  static constexpr std::int64_t head_dim = 1 << 14;
  static constexpr std::int64_t width = 1 << 20;  // hidden and intermediate sizes
  static constexpr std::int64_t vocabulary = 1 << 24;
  static constexpr std::int64_t tokens = std::int64_t{1} << 40;  // contexts and windows
};

/// config.json and what it says beyond Config: which projections have a bias, and whether it says
/// in so many words that the output head is not the embedding.
struct HfConfig {
  Config config;
  bool qkv_bias = false;
  bool output_bias = false;
  bool mlp_bias = false;
  bool untied_stated = false;
};

/// From the text of config.json and generation_config.json ("" if there is none). `folder_name` is
/// the model's name where the file gives none.
HfConfig parse_hf_config(std::string_view config_json, std::string_view generation_json,
                         const std::string& folder_name);

/// From a GGUF file's keys, its rope factor tensors and the shape of its embedding. `file_name` is
/// the model's name where the file gives none. Whether the head is tied is seen from the tensors.
Config gguf_config(const GgufFile& file, const std::string& file_name);

/// Error(unsupported) for a mixture of experts, whatever the file.
[[noreturn]] void fail_mixture_of_experts(std::string_view architecture);

/// Checks what no single key shows, such as that the number of heads is a multiple of the KV heads,
/// and that there are as many factors as frequencies. Both readers end with it.
void check_consistency(const Config& config);

}  // namespace kvatlas::model
