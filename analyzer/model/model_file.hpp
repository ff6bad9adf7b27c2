// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "analyzer/checkpoint/tensor.hpp"
#include "analyzer/config/config.hpp"
#include "analyzer/tokenizer/tokenizer.hpp"

namespace kvatlas::model {

/// Rows of a weight in the order that the forward pass wants, taken from one stored tensor: fused
/// projections are ranges of rows, permuted ones (GGUF's q and k of the llama kind, InternLM2's
/// wqkv) a list, and interleaved ones have a step. Row i is the stored row first + step * i, or
/// first + order[i]; of a vector, which is one row, the same holds for its elements.
struct Rows {
  const StoredTensor* tensor = nullptr;
  std::int64_t columns = 0;
  std::int64_t first = 0, step = 1;
  std::int64_t count = 0;
  std::vector<std::int64_t> order;
  bool is_vector = false;
  /// How the stored numbers become those of the weight.
  enum class Encoding : std::uint8_t {
    plain,
    transposed,  // stored [columns, rows], as the matrix that begins at value `offset`
    mxfp4,       // pairs of 4-bit numbers, and for each 32 of them a power of two in `scales`
    nvfp4,       // likewise, for each 16 a scale in E4M3, and `global_scale` for all
    scaled,      // times a factor that scale_rows rows and scale_columns columns share
    packed       // as `packed` says, with the scales of its groups of columns in `scales`
  };
  Encoding encoding = Encoding::plain;
  std::int64_t offset = 0;
  const StoredTensor* scales = nullptr;
  std::int64_t scale_rows = 0, scale_columns = 0;
  float global_scale = 1;       // the scales are multiplied by it, or
  bool global_divides = false;  // divided
  PackedBits packed = {};
  std::int64_t groups = 0, stored_rows = 0;  // of a packed matrix
};

/// A weight matrix: [sum of counts, columns]. Parts lie one under the other (q, k, v; gate, up).
/// Vectors (norms, biases) are [1, n], their parts side by side. No parts: the model has no such
/// tensor.
struct Weight {
  std::vector<Rows> parts;
  explicit operator bool() const { return !parts.empty(); }
  std::int64_t rows() const;
  std::int64_t columns() const;
};

/// The weights of one layer. Shapes: D hidden_size, H heads, K kv heads, d head_dim, I
/// intermediate_size, E experts of inner width X, S the inner width of the shared expert. A layer
/// without a norm before or after a block lacks it, and biases are where the model has them.
struct LayerWeights {
  Weight attention_norm, attention_norm_bias;  // [D]
  Weight qkv;                      // [(H + 2K) d, D], q then k then v, rotate-half order
  Weight qkv_bias;                 // [(H + 2K) d]
  Weight q_norm, k_norm;           // [d] for each head, or [H d] and [K d] over all heads
  Weight output;                   // [D, H d]
  Weight output_bias;              // [D]
  Weight sinks;                    // [H]
  Weight post_attention_norm;      // [D] after attention, before the sum
  Weight mlp_norm, mlp_norm_bias;  // [D]
  Weight gate_up;                  // [2 I, D], or [I, D] in a block without a gate
  Weight gate_up_bias;             // [2 I] or [I]
  Weight activation;               // [4] xIELU's alphas, beta and epsilon
  Weight down;                     // [D, I]
  Weight down_bias;                // [D]
  Weight post_mlp_norm;            // [D]
  // Latent attention, of ranks Q and R, instead of qkv; r dimensions of a head are rotated:
  Weight query_down, query_norm;  // [Q, D], [Q]
  Weight query_up;                // [H d, Q], or [H d, D]: of each head the rotated part first
  Weight latent_down;             // [R + r, D]: the latent, then the rotated part of all keys
  Weight latent_norm;             // [R]
  Weight latent_up;               // [H (d - r + v), R]: of each head its key, then its value
  // What the layer adds of its own input of a token (P numbers), and a factor of all at its end.
  Weight input_gate, input_up, input_norm;  // [P, D], [D, P], [D]
  Weight layer_scale;                       // [1]
  // Of A streams, and of the linear step of rank r beside attention:
  Weight stream_router, stream_router_norm;          // [A, D], [D]
  Weight stream_prediction, stream_correction;       // [A A, A], [A, A]
  Weight stream_scale;                               // [D]
  Weight shortcut_down, shortcut_up, shortcut_norm;  // [r, D], [D, r], [D]
  Weight router;                                     // [E, D]
  Weight router_bias;                                // [E]
  Weight router_correction;                          // [E] added to scores where experts are chosen
  Weight router_norm;                                // [D] of what the router sees
  Weight router_scale;  // [E] by which the weights of experts are multiplied
  Weight dense_norm, expert_norm, post_expert_norm;  // [D] of experts beside a dense block
  Weight expert_gate_up;       // [E 2X, D]: of each expert its gate, then its up projection
  Weight expert_gate_up_bias;  // [E 2X]
  Weight expert_down;          // [E D, X]
  Weight expert_down_bias;     // [E D]
  Weight shared_gate_up;       // [2 S, D]
  Weight shared_down;          // [D, S]
  Weight shared_gate;          // [1, D] a sigmoid of it scales the shared expert
  // Of a layer without attention: what its convolution and its state are made of. Its output is
  // `output`, and its feed-forward block as above.
  Weight state_in, state_in_bias;  // [queries, keys, values, gates, steps, decays; D] or [3 D, D]
  Weight conv, conv_bias;          // [channels, kernel], [channels]
  Weight decay, step_bias;         // [value heads]
  Weight state_norm;               // [value dim], or all values
  Weight state_skip;               // [value heads] of what passes the state by
  /// Layers without attention before this one and, of the last layer, after it.
  std::vector<LayerWeights> before = {}, after = {};
};

/// An opened checkpoint: a GGUF file or a Hugging Face folder. Weights stay in the mapped files.
class ModelFile {
 public:
  /// Opens, checks config against tensors (every weight there, every shape right). Errors name file
  /// and tensor. "org/name" is a model in Hugging Face's cache (found_model).
  static std::shared_ptr<const ModelFile> open(const std::filesystem::path& path);

  virtual ~ModelFile() = default;

  const Config& config() const { return config_; }
  const std::filesystem::path& path() const { return path_; }
  /// nullptr if the checkpoint has no tokenizer, or one of an unsupported kind (tokenizer_problem()
  /// says which).
  const std::shared_ptr<const Tokenizer>& tokenizer() const { return tokenizer_; }
  const std::string& tokenizer_problem() const { return tokenizer_problem_; }
  const std::vector<LayerWeights>& layers() const { return layers_; }
  const Weight& embedding() const { return embedding_; }              // [V, D]
  const Weight& final_norm() const { return final_norm_; }            // [D]
  const Weight& final_norm_bias() const { return final_norm_bias_; }  // [D]
  const Weight& head() const { return head_; }            // [V, D]; the embedding itself if tied
  const Weight& head_bias() const { return head_bias_; }  // [V]
  /// Where layers read inputs of their own, P numbers each: [V, layers P], [layers P, D], [P].
  const Weight& layer_embedding() const { return layer_embedding_; }
  const Weight& layer_projection() const { return layer_projection_; }
  const Weight& layer_projection_norm() const { return layer_projection_norm_; }
  /// Of A streams, all but the first: [(A - 1) D, D] that makes them of the embedding, and that
  /// turns them back at the end.
  const Weight& stream_starts() const { return stream_starts_; }
  const Weight& stream_ends() const { return stream_ends_; }
  virtual const std::vector<StoredTensor>& tensors() const = 0;
  /// How many bytes all weights take together.
  std::int64_t stored_bytes() const;
  virtual std::string format() const = 0;  // "GGUF v3", "safetensors, 3 shards"

  /// A hash of configuration and of a sample of every tensor's bytes: 16 hex digits.
  const std::string& fingerprint() const { return fingerprint_; }

  /// Throws Error(unreadable) if a mapped file was cut or changed since it was opened.
  virtual void require_intact() const = 0;
  virtual void will_need(const StoredTensor& tensor) const = 0;
  virtual void release(const StoredTensor& tensor) const = 0;

 protected:
  Config config_;
  std::filesystem::path path_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::string tokenizer_problem_;
  std::vector<LayerWeights> layers_;
  Weight embedding_, final_norm_, final_norm_bias_, head_, head_bias_;
  Weight layer_embedding_, layer_projection_, layer_projection_norm_;
  Weight stream_starts_, stream_ends_;
  std::string fingerprint_;
};

/// Decodes rows [first, first + count) of a weight to float32, in order, with all threads.
void read_rows(const Weight& weight, std::int64_t first, std::int64_t count, float* out);

}  // namespace kvatlas::model
