// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <future>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "analyzer/model/model_file.hpp"

namespace kvatlas::capture {

// Matrices are decoded in pieces of about this many bytes where they cannot be decoded in place,
// and the head is multiplied in such pieces.
inline constexpr std::int64_t kStagingBytes = 64 << 20;

/// How many values a matrix has; none if the model lacks it.
inline std::int64_t value_count(const model::Weight& weight) {
  return weight ? weight.rows() * weight.columns() : 0;
}

/// How many values the matrices of a layer have, those of layers without attention beside it
/// included.
struct MatrixValues {
  std::int64_t experts = 0;  // of which a token passes a few
  std::int64_t others = 0;
  std::int64_t largest = 0;  // of the matrices that every token passes

  std::int64_t all() const { return experts + others; }
  void add(const MatrixValues& more);
};
MatrixValues matrix_values(const model::LayerWeights& layer);

/// The weights of one layer in the number format and on the device that they are used in. Shapes as
/// in model::LayerWeights; tensors that the model lacks are undefined.
struct LayerTensors {
  at::Tensor attention_norm, attention_norm_bias, qkv, qkv_bias, q_norm, k_norm, output,
      output_bias, post_attention_norm, sinks;
  at::Tensor mlp_norm, mlp_norm_bias, gate_up, gate_up_bias, activation, down, down_bias,
      post_mlp_norm;
  at::Tensor router, router_bias, router_correction, expert_gate_up, expert_gate_up_bias,
      expert_down, expert_down_bias, shared_gate_up, shared_down, shared_gate, router_norm,
      router_scale, dense_norm, expert_norm, post_expert_norm;
  at::Tensor state_in, state_in_bias, conv, conv_bias, decay, step_bias, state_norm, state_skip;
  at::Tensor query_down, query_norm, query_up, latent_down, latent_norm, latent_up;
  at::Tensor input_gate, input_up, input_norm, layer_scale;
  at::Tensor stream_router, stream_router_norm, stream_prediction, stream_correction, stream_scale,
      shortcut_down, shortcut_up, shortcut_norm;
  std::vector<LayerTensors> before = {}, after = {};
};

/// Hands out the weights layer by layer. Resident weights are decoded on first use and kept.
/// Streamed weights are held for two layers at a time: while one runs, the next is decoded in the
/// background.
class WeightStore {
 public:
  /// How a weight is held.
  enum class Form {
    plain,
    as_float,    // float32, whatever the others are
    multiplied,  // as `linear` reads it fastest, unless it is streamed
  };

  WeightStore(std::shared_ptr<const model::ModelFile> model, at::TensorOptions options,
              bool streaming);
  ~WeightStore();

  /// The result is valid until the call after the next one. Layers are asked for in order, again
  /// and again.
  const LayerTensors& layer(std::int64_t index);

  const at::Tensor& final_norm();
  const at::Tensor& final_norm_bias();
  const at::Tensor& stream_starts();
  const at::Tensor& stream_ends();
  /// Rows of the embedding for the tokens: [n, D].
  at::Tensor embed(const std::vector<std::int64_t>& tokens) const;
  /// What each layer reads of the tokens besides hidden states, made of their embeddings [n, D]:
  /// [n, layers, P], or undefined where the model has no such inputs.
  at::Tensor layer_inputs(const std::vector<std::int64_t>& tokens, const at::Tensor& embedded);
  /// rows [n, D] -> logits [n, V], float32.
  at::Tensor logits(const at::Tensor& rows);

  bool streaming() const { return streaming_; }

 private:
  void load(const model::Weight& weight, at::Tensor& into, Form form = Form::plain) const;
  /// What was decoded is not needed in the process's memory any more.
  void release(const model::Weight& weight) const;
  const at::Tensor& kept(const model::Weight& weight, at::Tensor& into) const;
  /// Rows of a table for the tokens, float32 on the host.
  at::Tensor rows_of(const model::Weight& table, const std::vector<std::int64_t>& tokens) const;
  void load_layer(std::int64_t index, LayerTensors& into) const;
  void load_all(const model::LayerWeights& from, LayerTensors& into) const;

  std::shared_ptr<const model::ModelFile> model_;
  at::TensorOptions options_;
  bool streaming_;
  std::vector<LayerTensors> kept_;  // resident: [n_layers]; streaming: two, used in turn
  std::vector<std::int64_t> held_;  // which layer each of kept_ holds, -1 for none
  std::future<void> prefetch_;
  at::Tensor final_norm_, final_norm_bias_, head_bias_;
  std::vector<at::Tensor> head_;  // resident: its pieces
  at::Tensor layer_projection_, layer_projection_norm_;
  at::Tensor stream_starts_, stream_ends_;
};

}  // namespace kvatlas::capture
