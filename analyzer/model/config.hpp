// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace kvatlas::model {

/// Families whose forward pass kvatlas knows. Yi, SmolLM and Llama 2/3.x are `llama`; Qwen 2.5 is
/// `qwen2`.
enum class Architecture { llama, mistral, qwen2, qwen3, internlm2, phi3, gemma2, gemma3 };
const char* architecture_name(Architecture architecture);

enum class RopeKind { plain, linear, dynamic, llama3, yarn, longrope };
const char* rope_kind_name(RopeKind kind);

/// How positions turn into rotation angles. Fields that a kind does not use keep their defaults.
struct Rope {
  RopeKind kind = RopeKind::plain;
  double theta = 10000.0;
  double factor = 1.0;
  std::int64_t original_context = 0;       // llama3, yarn, longrope, dynamic: positions trained on
  double low_freq_factor = 1.0;            // llama3
  double high_freq_factor = 4.0;           // llama3
  double beta_fast = 32.0;                 // yarn
  double beta_slow = 1.0;                  // yarn
  bool truncate = true;                    // yarn: round the correction range to whole dimensions
  std::optional<double> mscale;            // yarn
  std::optional<double> mscale_all_dim;    // yarn
  std::optional<double> attention_factor;  // yarn, longrope: scale of cos and sin, if stated
  std::vector<double> short_factor;        // longrope: [rotary_dim / 2]
  std::vector<double> long_factor;         // longrope: [rotary_dim / 2]
  std::vector<double> divisors;  // GGUF rope_freqs: each frequency divided by it, [rotary_dim / 2]
};

enum class Activation { silu, gelu_tanh };

/// What a checkpoint says of itself, in one spelling whatever the file. Every number is checked:
/// positive, finite, of sane size, and consistent (heads a multiple of KV heads, …).
struct Config {
  Architecture architecture = Architecture::llama;
  std::string name;  // general.name, _name_or_path or the folder's name
  std::int64_t n_layers = 0;
  std::int64_t n_heads = 0;
  std::int64_t n_kv_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t hidden_size = 0;
  std::int64_t intermediate_size = 0;
  std::int64_t vocab_size = 0;
  std::int64_t context_length = 0;
  double norm_eps = 1e-6;
  bool tied_embeddings = false;
  Activation activation = Activation::silu;

  std::int64_t rotary_dim = 0;  // head_dim x partial_rotary_factor
  Rope rope;  // of every layer, or of the full-attention layers where local_rope is set
  std::optional<Rope> local_rope;    // of layers with a window (Gemma 3)
  std::vector<std::int64_t> window;  // [n_layers] keys seen, the query's own included; 0 = all

  double attention_scale = 0.0;    // query . key is multiplied by it: head_dim^-0.5 unless stated
  double attention_softcap = 0.0;  // cap * tanh(score / cap); 0 = none
  double logit_softcap = 0.0;      // the same on the logits
  double embedding_scale = 1.0;    // embeddings are multiplied by it (Gemma: sqrt(hidden_size))
  double norm_offset = 0.0;  // RMS norm multiplies by offset + weight (Gemma in safetensors: 1)

  std::vector<std::int64_t>
      eos_tokens;  // config, generation_config.json and GGUF's own, without duplicates
};

}  // namespace kvatlas::model
