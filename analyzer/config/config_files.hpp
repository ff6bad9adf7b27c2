// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "analyzer/checkpoint/tensor.hpp"
#include "analyzer/config/config.hpp"

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

/// How a Hugging Face checkpoint calls its tensors; nullptr for what it does not have.
struct HfLayout {
  const char *embedding = "embed_tokens.weight", *final_norm = "norm", *head = "lm_head";
  // Norms of a layer.
  const char *before_attention = "input_layernorm", *after_attention = nullptr;
  const char *before_mlp = "post_attention_layernorm", *after_mlp = nullptr;
  // Attention: each head's norm, or one over all heads.
  const char *attention = "self_attn.", *fused_qkv = nullptr, *output = "o_proj";
  const char *q_norm = nullptr, *k_norm = nullptr;
  bool wide_qk_norm = false;
  const char* sinks = nullptr;
  bool qkv_by_kv_head = false;     // the rows of fused_qkv, as InternLM2 orders them
  bool neighbours_rotate = false;  // RoPE turns dimensions (2i, 2i + 1), not (i, i + half)
  // The feed-forward block.
  const char *mlp = "mlp.", *gate = "gate_proj", *up = "up_proj", *down = "down_proj";
  const char* fused_gate_up = nullptr;
  /// A feed-forward block of experts: a tensor for each, or stacked ones. `correction` is added to
  /// the router's scores where experts are chosen.
  const char *sparse = "mlp.", *router = "gate.weight", *correction = nullptr;
  const char* router_bias = nullptr;
  const char *expert_gate = "gate_proj", *expert_up = "up_proj", *expert_down = "down_proj";
  const char *stacked_gate_up = nullptr, *stacked_down = nullptr;
  bool transposed_experts = false;  // each of the stacked matrices
  /// The stacked matrices are transposed or in MXFP4, gate and up lie interleaved, and router and
  /// experts have biases (gpt-oss).
  bool interleaved_experts = false;
  /// Without a name of its own the shared expert is called as the dense block.
  const char *shared = nullptr, *shared_gate = nullptr;
  const char* layer_scale = nullptr;
};

/// config.json and what it says beyond Config: which projections and norms have a bias, how the
/// tensors are called, and whether it says in so many words that the output head is not the
/// embedding.
struct HfConfig {
  Config config;
  HfLayout layout;
  bool qkv_bias = false;
  bool output_bias = false;
  bool mlp_bias = false;
  bool norm_bias = false;
  bool head_bias = false;
  bool state_bias = false;  // of layers without attention, and of their convolutions
  bool conv_bias = false;
  bool untied_stated = false;
  std::optional<PackedBits> packed;       // of the matrices whose names say that they are packed
  std::vector<std::int64_t> scale_block;  // rows and columns that share a scale, if it says so
};

/// From the text of config.json and generation_config.json ("" if there is none). `folder_name` is
/// the model's name where the file gives none.
HfConfig parse_hf_config(std::string_view config_json, std::string_view generation_json,
                         const std::string& folder_name);

/// From a GGUF file's keys, its rope factor tensors and the shape of its embedding. `file_name` is
/// the model's name where the file gives none. Whether the head is tied is seen from the tensors.
Config gguf_config(const GgufFile& file, const std::string& file_name);
/// What general.architecture says of such a model; empty if no GGUF file of it is read.
std::string_view gguf_name(Architecture architecture);

/// The last layer before `first` that has a window where `layer` has one: its keys are read by
/// `layer`, which has none. Error(unreadable) if there is none.
std::int64_t lending_layer(const Config& config, std::int64_t layer, std::int64_t first);

/// Where some layers have no attention, lists that hold an entry for each layer keep those of the
/// others.
void keep_attention_layers(Config& config);

/// Error(unsupported) for an architecture that is not among the known ones.
[[noreturn]] void fail_architecture(std::string_view name, const std::vector<std::string>& known);

/// Checks what no single key shows, such as that the number of heads is a multiple of the KV heads,
/// and that there are as many factors as frequencies. Both readers end with it.
void check_consistency(const Config& config);

}  // namespace kvatlas::model
