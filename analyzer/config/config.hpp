// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/key_window.hpp"

namespace kvatlas::model {

/// Families whose forward pass kvatlas knows. Yi, SmolLM and Llama 2/3.x are `llama`; Qwen 2.5 is
/// `qwen2`.
enum class Architecture {
  llama,
  mistral,
  qwen2,
  qwen3,
  internlm2,
  phi3,
  gemma2,
  gemma3,
  apertus,
  arcee,
  cohere2,
  dots1,
  ernie4_5,
  ernie4_5_moe,
  exaone4,
  glm4,
  glm4_moe,
  granite,
  granitemoe,
  hunyuan_v1_dense,
  minimax_m2,
  ministral,
  mixtral,
  nemotron,
  olmo2,
  olmo3,
  olmoe,
  phi,
  phimoe,
  qwen2_moe,
  qwen3_moe,
  seed_oss,
  smollm3,
  stablelm,
  starcoder2,
  gpt_oss,
  lfm2,
  qwen3_next,
  qwen3_5,
  qwen3_5_moe,
  deepseek_v2,
  deepseek_v3,
  gemma4,
  granitemoehybrid,
  gemma3n,
  llama4
};
const char* architecture_name(Architecture architecture);
/// All of them, in alphabetic order.
std::vector<std::string> architecture_names();

enum class RopeKind { plain, linear, dynamic, llama3, yarn, longrope, proportional };
const char* rope_kind_name(RopeKind kind);

/// How positions turn into rotation angles. Fields that a kind does not use keep their defaults.
struct Rope {
  RopeKind kind = RopeKind::plain;
  double theta = 10000.0;
  double factor = 1.0;
  double share = 1.0;  // proportional: of the frequencies, the fastest, that turn at all
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

enum class NormKind { rms, layer };
enum class Activation { silu, gelu_tanh, gelu, relu2, xielu, clamped_swiglu };
const char* activation_name(Activation activation);

/// A feed-forward block of experts, of which a router sends each token to a few.
struct Experts {
  enum class Score {
    softmax,      // over all experts
    sigmoid,      // of each expert alone
    sparse_mixer  // Phi's: the best two, each by a softmax over those that come near it
  };
  std::int64_t count = 0;        // 0: the model has none
  std::int64_t active = 0;       // experts a token
  std::int64_t size = 0;         // inner width of an expert
  std::int64_t shared_size = 0;  // inner width of what every token passes besides; 0: nothing
  Score score = Score::softmax;
  bool normalised = false;  // the weights of a token's experts are divided by their sum
  double scale = 1.0;       // and multiplied by this
  /// Only experts of the best groups are chosen from; a group counts as its best expert or two.
  std::int64_t groups = 1, active_groups = 1, best_of_group = 2;
  bool weighs_inputs = false;  // the weight scales what an expert reads, not what it gives
  bool beside_dense = false;   // tokens pass the dense block too, and each has norms of its own
  double jitter = 0.01;        // sparse_mixer: how near the best "near" is
  std::vector<std::uint8_t> in_layer;  // [total_layers]: 1 where the block is of experts
};

/// Layers without attention, between those with it: they hold a state of fixed size.
struct StateLayers {
  enum class Kind {
    none,
    delta_net,   // gated delta rule (Qwen3-Next, Qwen 3.5)
    short_conv,  // gated short convolution (LFM 2)
    mamba2       // selective state space (Granite 4)
  };
  Kind kind = Kind::none;
  std::int64_t conv_kernel = 0;  // tokens that the convolution sees
  /// delta_net; of mamba2 the groups, the heads, and what a state and a head hold.
  std::int64_t key_heads = 0, value_heads = 0, key_dim = 0, value_dim = 0;

  /// Value head i goes with key head i % key_heads, not with i / (value_heads / key_heads).
  bool tiled = false;
  bool rates = false;  // decays are stored as minus the exponentials of what they else are

  std::int64_t keys() const { return key_heads * key_dim; }
  std::int64_t values() const { return value_heads * value_dim; }
};

/// Queries, keys and values from vectors of low rank (DeepSeek's latent attention), of which the
/// cache holds that of the keys and values, and the part of the keys that RoPE turns.
struct Latent {
  std::int64_t query_rank = 0;                  // 0: queries are projected at once
  std::int64_t rank = 0;                        // 0: the model has no latent attention
  std::int64_t rotated_dim = 0, plain_dim = 0;  // of a query or key: turned by RoPE, and not
};

/// Several hidden states of a token that go through the layers side by side (AltUp, Gemma 3n). The
/// blocks of a layer work on one of them, and the others are predicted and corrected from it.
struct Streams {
  std::int64_t count = 0;          // 0: the model has the ordinary one
  std::int64_t active = 0;         // the one that the blocks work on
  bool scaled = true;              // what a layer's own input is weighed by is scaled first
  std::int64_t shortcut_rank = 0;  // of a linear step beside attention (LAuReL)
};

/// Queries of layers without RoPE are multiplied by 1 + scale * log(1 + floor((i + 1) / tokens)) at
/// position i (Llama 4).
struct Temperature {
  double scale = 0.0;  // 0: they are not
  double tokens = 8192.0;
};

/// The sizes of one layer. Where layers differ, all of them are observed in the model's largest
/// sizes: heads filled up with zeros, and KV heads repeated.
struct LayerShape {
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;  // of queries and keys
  std::int64_t value_dim = 0;
  std::int64_t intermediate_size = 0;
  std::int64_t keys_of = 0;     // the layer whose keys and values it reads: its own, if none
  bool one_projection = false;  // keys and values come from one
};

/// What a checkpoint says of itself, in one spelling whatever the file. Every number is checked:
/// positive, finite, of sane size, and consistent (heads a multiple of KV heads, …).
struct Config {
  Architecture architecture = Architecture::llama;
  std::string name;           // general.name, _name_or_path or the folder's name
  std::int64_t n_layers = 0;  // with attention
  std::int64_t n_heads = 0;
  std::int64_t n_kv_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t hidden_size = 0;
  std::int64_t intermediate_size = 0;
  std::int64_t vocab_size = 0;
  std::int64_t context_length = 0;
  double norm_eps = 1e-6;
  bool tied_embeddings = false;
  NormKind norm = NormKind::rms;  // of layers and of the last one; heads have RMS norms
  Activation activation = Activation::silu;
  double swiglu_alpha = 1.702, swiglu_limit = 7.0;  // clamped_swiglu (gpt-oss)
  bool gated = true;                                // activation(gate) * up; else activation(up)
  bool parallel_block = false;  // attention and feed-forward block read the same hidden states
  Experts experts;
  StateLayers state_layers;
  Latent latent;
  std::vector<LayerShape> shapes;  // [n_layers]; empty: all have the sizes above
  /// [n_layers]: the number of each layer with attention among all of the model; empty: there are
  /// no others.
  std::vector<std::int64_t> layer_numbers;
  std::int64_t total_layers = 0;  // with those without attention
  bool gated_attention = false;   // what attention gives is multiplied by sigmoids of its own

  std::int64_t rotary_dim = 0;        // head_dim x partial_rotary_factor
  std::int64_t local_rotary_dim = 0;  // of local_rope
  Rope rope;  // of every layer, or of the full-attention layers where local_rope is set
  std::optional<Rope> local_rope;     // of layers with a window (Gemma 3)
  std::vector<std::int64_t> window;   // [n_layers] sizes; 0 = all keys are seen
  bool chunks = false;                // the windows are chunks (base/key_window.hpp)
  std::vector<std::uint8_t> rotated;  // [n_layers] 0 where a layer has no RoPE; empty: all have it
  bool norms_after_rope = false;      // the norms of queries and keys
  bool rotated_norms = false;         // such norms, without a weight, in layers that have RoPE
  Temperature temperature;
  bool value_norms = false;           // values are normed too, without a weight
  std::int64_t layer_input_size = 0;  // each layer reads so many numbers made of its token (Gemma)
  std::int64_t layer_input_vocab =
      0;  // tokens that have such numbers; others take those of token 0
  Streams streams;
  /// [n_layers] or empty: gates of a feed-forward block that lie less than so many standard
  /// deviations above their mean count as nothing, and the others as what is above (Gemma 3n).
  std::vector<std::optional<double>> sparse_gates;
  /// [n_layers] or empty: xIELU's alphas, beta and epsilon where no tensor has them.
  std::vector<std::array<float, 4>> activation_numbers;

  double attention_scale = 0.0;    // query . key is multiplied by it: head_dim^-0.5 unless stated
  double attention_softcap = 0.0;  // cap * tanh(score / cap); 0 = none
  double logit_softcap = 0.0;      // the same on the logits
  double logit_scale = 1.0;        // logits are multiplied by it
  double embedding_scale = 1.0;    // embeddings are multiplied by it (Gemma: sqrt(hidden_size))
  double residual_scale = 1.0;     // what a block adds to the hidden states is multiplied by it
  double norm_offset = 0.0;        // norms multiply by offset + weight (Gemma in safetensors: 1)

  std::vector<std::int64_t>
      eos_tokens;  // config, generation_config.json and GGUF's own, without duplicates

  /// Leaves layers that see all tokens without RoPE.
  void rotate_windows_alone();
  bool has_rope(std::int64_t layer) const { return rotated.empty() || rotated[layer] != 0; }
  KeyWindow key_window(std::int64_t layer) const { return {window[layer], chunks}; }
  LayerShape shape(std::int64_t layer) const {
    if (!shapes.empty()) return shapes[layer];
    return {n_kv_heads, head_dim, head_dim, intermediate_size, layer, false};
  }
  /// Numbers that the cache holds of a token in a layer.
  std::int64_t cached_values(std::int64_t layer) const;
  /// `number` counts all layers of the model.
  bool has_experts(std::int64_t number) const {
    return experts.count > 0 && experts.in_layer[number] != 0;
  }
};

}  // namespace kvatlas::model
