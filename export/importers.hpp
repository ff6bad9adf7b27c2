// SPDX-License-Identifier: Apache-2.0
// Turns head patterns of other software into policy documents with a section "heads". These
// functions are given the texts of files, and read no files themselves.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "calibrate/policy/policy.hpp"
#include "export/checkpoint.hpp"

namespace kvatlas::importing {

/// What the user asks of an import, and what the files do not say.
struct ImportRequest {
  calibrate::ModelInfo model;           // what is known of the model; unknown numbers are 0
  std::optional<std::int64_t> initial;  // if given, they replace the numbers of the files
  std::optional<std::int64_t> recent;
  std::optional<double> sparsity;   // DuoAttention: the share of KV heads that become lazy
  std::optional<double> share;      // HeadKV: the share of KV heads that stay full
  std::optional<double> threshold;  // heads with a lower number become lazy
  std::string tool_version;
};

/// The largest file that is imported, in bytes.
inline constexpr std::size_t kLargestPattern = std::size_t{16} << 20;

/// What a checkpoint's config.json says of the model: layers, heads, their dimension, the
/// architecture and the name. Numbers that it does not give are 0. Error(unreadable) for numbers
/// that no model has.
calibrate::ModelInfo model_of_config(const nlohmann::json& config);

// The importers fail with Error(unreadable), which names the place, if the text is not of the
// format, or if its numbers are those of another model; with Error(usage) if the request lacks
// something.

/// Reads full_attention_heads.tsv and config.json. A table of zeros and ones is taken as it is.
/// Other tables need `sparsity` or `threshold`.
calibrate::Document import_duo_attention(std::string_view table, std::string_view config,
                                         const ImportRequest& request);
/// Reads scores or capacities of query heads. The number of a KV head is the mean of those of its
/// query heads.
calibrate::Document import_headkv(std::string_view text, const ImportRequest& request);
/// Reads patterns of query heads. A KV head is lazy if all of its query heads have the pattern
/// stream_llm.
calibrate::Document import_minference(std::string_view text, const ImportRequest& request);

/// How a checkpoint's cache is stored, as config.json or hf_quant_config.json (null without one)
/// says, and the scales among its tensors.
calibrate::Document import_kv_cache(const exporting::Checkpoint& checkpoint,
                                    const nlohmann::json& hf_quant_config,
                                    const std::optional<calibrate::Fp8Scales>& scales,
                                    const ImportRequest& request);
/// FP8 in all layers, with scales of a profile.
calibrate::Document import_ranges(const calibrate::ModelInfo& model, calibrate::Fp8Scales scales,
                                  const ImportRequest& request);

}  // namespace kvatlas::importing
