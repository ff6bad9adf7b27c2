// SPDX-License-Identifier: Apache-2.0
// What is read of a Hugging Face checkpoint's folder whose cache is to be stored in FP8, or already
// says how it is stored.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "calibrate/policy/policy.hpp"

namespace kvatlas::exporting {

struct Checkpoint {
  std::filesystem::path folder;              // without links
  nlohmann::json config;                     // config.json
  std::map<std::string, std::string> files;  // of tensors: the file that holds each
  std::vector<std::string> others;           // all files but config.json and the index, by name
  /// [layer]: how the names of its attention's tensors begin, such as "model.layers.0.self_attn.".
  std::vector<std::string> attention;
  std::vector<std::int64_t> layer_numbers;  // of them among all, if not all layers have attention
  std::int64_t heads = 0, kv_heads = 0;
};

/// Error(unreadable) for a folder that is no checkpoint in safetensors, Error(unsupported) for an
/// architecture or a quantisation that is not known.
Checkpoint open_checkpoint(const std::filesystem::path& folder);

/// The scales of keys and values among its tensors, by the names of llm-compressor and of ModelOpt;
/// nothing if there are none. Layers without have 1. Error(unreadable) for what is no scale.
std::optional<calibrate::Fp8Scales> scales_in(const Checkpoint& checkpoint);

}  // namespace kvatlas::exporting
