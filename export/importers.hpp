// SPDX-License-Identifier: Apache-2.0
// Others' head patterns to policy documents with a section "heads". Pure: texts in, a document out.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "calibrate/policy/policy.hpp"

namespace kvatlas::importing {

/// What is asked of an import, and what the files do not say.
struct ImportRequest {
  calibrate::ModelInfo model;           // what is known of it; 0 where it is not
  std::optional<std::int64_t> initial;  // instead of the files'
  std::optional<std::int64_t> recent;
  std::optional<double> sparsity;   // DuoAttention: the share of KV heads that become lazy
  std::optional<double> share;      // HeadKV: the share of KV heads that stay full
  std::optional<double> threshold;  // heads whose number is lower become lazy
  std::string tool_version;
};

/// Most bytes of a file that is imported.
inline constexpr std::size_t kLargestPattern = std::size_t{16} << 20;

/// A checkpoint's config.json: layers, heads, their dimension, the architecture and the name.
/// Error(unreadable) for numbers of no sane size; what it does not say is 0.
calibrate::ModelInfo model_of_config(const nlohmann::json& config);

// Error(unreadable), naming the place, for what is no such file, or has the numbers of another
// model; Error(usage) for what the request lacks.

/// full_attention_heads.tsv and config.json. A table of zeros and ones is taken as it is, others
/// need `sparsity` or `threshold`.
calibrate::Document import_duo_attention(std::string_view table, std::string_view config,
                                         const ImportRequest& request);
/// Scores, or capacities, of query heads: a KV head has the mean of its query heads.
calibrate::Document import_headkv(std::string_view text, const ImportRequest& request);
/// A KV head is lazy if all of its query heads have the pattern stream_llm.
calibrate::Document import_minference(std::string_view text, const ImportRequest& request);

}  // namespace kvatlas::importing
