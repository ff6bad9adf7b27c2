// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "analyzer/config/config_files.hpp"
#include "analyzer/model/model_file.hpp"

namespace kvatlas::model {

/// Finds tensors by name and checks their shapes, whichever file they lie in.
class TensorFinder {
 public:
  using Find = std::function<const StoredTensor*(std::string_view)>;
  explicit TensorFinder(Find find) : find_(std::move(find)) {}

  bool has(const std::string& name) const { return find_(name) != nullptr; }
  /// The whole tensor as one part; Error(unreadable) if it is missing or of another shape. Axes of
  /// length 1 do not count.
  Rows matrix(const std::string& name, std::int64_t rows, std::int64_t columns) const;
  Rows vector(const std::string& name, std::int64_t size) const;
  /// A matrix of small numbers, each block of which goes with a factor: block [rows, columns], or
  /// if that is empty as many rows and columns as the scales' shape leaves each.
  Rows scaled(const std::string& name, const std::string& scales, std::int64_t rows,
              std::int64_t columns, const std::vector<std::int64_t>& block) const;
  /// A matrix of packed numbers: the tensors NAME.qweight, .scales, .qzeros and .g_idx, or as
  /// compressed-tensors calls them NAME.weight_packed and so on.
  Rows packed(const std::string& name, std::int64_t rows, std::int64_t columns,
              const PackedBits& format) const;
  /// A matrix in NVFP4: as compressed-tensors stores it, NAME.weight_packed, .weight_scale and
  /// .weight_global_scale, or as Model Optimizer does, NAME.weight, .weight_scale and
  /// .weight_scale_2.
  Rows nvfp4(const std::string& name, std::int64_t rows, std::int64_t columns) const;
  /// `count` matrices in one tensor [count, rows, columns], each as a part.
  std::vector<Rows> stacked(const std::string& name, std::int64_t count, std::int64_t rows,
                            std::int64_t columns) const;
  /// `count` vectors in one tensor [count, size].
  std::vector<Rows> stacked_vectors(const std::string& name, std::int64_t count,
                                    std::int64_t size) const;
  /// The same matrices, each stored transposed: [count, columns, rows].
  std::vector<Rows> stacked_transposed(const std::string& name, std::int64_t count,
                                       std::int64_t rows, std::int64_t columns) const;
  /// The same matrices in MXFP4: the tensors NAME_blocks and NAME_scales.
  std::vector<Rows> stacked_mxfp4(const std::string& name, std::int64_t count, std::int64_t rows,
                                  std::int64_t columns) const;

 private:
  const StoredTensor& require(const std::string& name, const std::vector<std::int64_t>& shape,
                              bool scaled = false) const;
  Find find_;
};

/// Where RoPE turns neighbours (2i, 2i + 1) of a head: the stored row of each row of q or k, in the
/// order in which it turns (i, i + half).
std::vector<std::int64_t> neighbours_to_halves(const Config& config, std::int64_t n_heads);

/// The layers with attention, each with those before it that have none. `read` is given the number
/// of a layer among all, and among those with attention if it is one of them.
std::vector<LayerWeights> gather_layers(
    const Config& config,
    const std::function<LayerWeights(std::int64_t number, std::optional<std::int64_t> attention)>&
        read);

/// The query projection of gated attention, first of the parts, holds each head's queries and then
/// its gates; the gates become a part of their own at the end.
void split_gates(const Config& config, Weight& qkv);

/// Rows that lie together for each of `heads`, in pieces of these sizes: piece after piece instead.
std::vector<std::int64_t> by_head(const std::vector<std::int64_t>& pieces, std::int64_t heads);

/// Of latent attention, whose heads are stored as the part that RoPE leaves and then that which it
/// turns: here the latter comes first, as in every model with partial RoPE. Of the queries, and of
/// the projection to the latent, which ends in the part of the keys that RoPE turns.
std::vector<std::int64_t> latent_query_order(const Config& config, std::int64_t head_dim,
                                             bool neighbours);
std::vector<std::int64_t> latent_order(const Config& config, bool neighbours);

/// Appends, of each matrix or vector, every second row or element from the first on, and then from
/// the second.
void interleaved_halves(const std::vector<Rows>& fused, std::vector<Rows>& out);

/// All weights of a model.
struct ModelWeights {
  std::vector<LayerWeights> layers;
  Weight embedding, final_norm, final_norm_bias, head, head_bias;
  Weight layer_embedding, layer_projection, layer_projection_norm;
  Weight stream_starts, stream_ends;
};

/// What begins the names of a Hugging Face checkpoint's attention tensors, such as
/// "model.layers.0.self_attn.": [layer with attention].
std::vector<std::string> hf_attention_names(const HfConfig& config,
                                            const std::function<bool(const std::string&)>& has);

/// The tensors of a Hugging Face checkpoint, by the names of its architecture.
ModelWeights hf_weights(const HfConfig& config, const TensorFinder& finder);

/// The tensors of a GGUF file, by llama.cpp's names.
ModelWeights gguf_weights(const Config& config, const TensorFinder& finder);

}  // namespace kvatlas::model
