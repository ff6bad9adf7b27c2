// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <numeric>

#include "analyzer/model/weights.hpp"
#include "base/error.hpp"

namespace kvatlas::model {
namespace {

/// InternLM2 stores, for each KV head, its query heads, then its key, then its value head.
std::vector<std::int64_t> order_by_kv_head(const Config& config) {
  const std::int64_t group = config.n_heads / config.n_kv_heads;
  std::vector<std::int64_t> order;
  order.reserve((config.n_heads + 2 * config.n_kv_heads) * config.head_dim);
  const auto add_head = [&](std::int64_t kv_head, std::int64_t member) {
    const std::int64_t head = kv_head * (group + 2) + member;
    for (std::int64_t i = 0; i < config.head_dim; ++i) order.push_back(head * config.head_dim + i);
  };
  for (std::int64_t head = 0; head < config.n_heads; ++head) add_head(head / group, head % group);
  for (std::int64_t member : {group, group + 1})
    for (std::int64_t kv_head = 0; kv_head < config.n_kv_heads; ++kv_head)
      add_head(kv_head, member);
  return order;
}

/// Reads the layers of one checkpoint.
class Layers {
 public:
  Layers(const HfConfig& hf, const TensorFinder& finder) : hf_(hf), finder_(finder) {
    if (names_.qkv_by_kv_head) fused_order_ = order_by_kv_head(config_);
    if (names_.neighbours_rotate) {
      query_order_ = neighbours_to_halves(config_, config_.n_heads);
      key_order_ = neighbours_to_halves(config_, config_.n_kv_heads);
    }
  }

  /// The layers with attention, each with those before it that have none.
  std::vector<LayerWeights> read_all(const std::string& model) const {
    std::vector<LayerWeights> layers, waiting;
    const auto at = [&](std::int64_t number) {
      return model + "layers." + std::to_string(number) + ".";
    };
    const auto& with_attention = config_.layer_numbers;  // empty: all have it
    for (std::int64_t number = 0; number < config_.total_layers; ++number) {
      if (with_attention.empty() ||
          std::binary_search(with_attention.begin(), with_attention.end(), number)) {
        layers.push_back(read(number, at(number), true));
        layers.back().before = std::move(waiting);
        waiting.clear();
      } else {
        waiting.push_back(read(number, at(number), false));
      }
    }
    layers.back().after = std::move(waiting);
    return layers;
  }

  /// Layer `number` of all.
  LayerWeights read(std::int64_t number, const std::string& at, bool with_attention) const {
    LayerWeights layer;
    read_norms(at, layer);
    if (with_attention)
      read_attention(at + names_.attention, layer);
    else if (config_.state_layers.kind == StateLayers::Kind::delta_net)
      read_delta_net(at + "linear_attn.", layer);
    else
      read_short_conv(at + "conv.", layer);
    if (config_.has_experts(number))
      read_experts(at + names_.sparse, layer);
    else
      read_mlp(at + names_.mlp, layer);
    return layer;
  }

  /// A norm's weight, and its bias where the model has such; nothing without a name.
  void read_norm(const std::string& at, const char* name, Weight& weight, Weight* bias) const {
    if (name == nullptr) return;
    weight.parts = {finder_.vector(at + name + ".weight", config_.hidden_size)};
    if (hf_.norm_bias && bias)
      bias->parts = {finder_.vector(at + name + ".bias", config_.hidden_size)};
  }

 private:
  /// As it is, or with the scales that lie beside it.
  Rows matrix(const std::string& name, std::int64_t rows, std::int64_t columns) const {
    const std::string weight = name + ".weight";
    for (const char* ending : {"_scale_inv", "_scale"})
      if (finder_.has(weight + ending))
        return finder_.scaled(weight, weight + ending, rows, columns, hf_.scale_block);
    return finder_.matrix(weight, rows, columns);
  }
  Rows bias(const std::string& name, std::int64_t size) const {
    return finder_.vector(name + ".bias", size);
  }

  void read_norms(const std::string& at, LayerWeights& layer) const {
    read_norm(at, names_.before_attention, layer.attention_norm, &layer.attention_norm_bias);
    read_norm(at, names_.after_attention, layer.post_attention_norm, nullptr);
    read_norm(at, names_.before_mlp, layer.mlp_norm, &layer.mlp_norm_bias);
    read_norm(at, names_.after_mlp, layer.post_mlp_norm, nullptr);
    if (config_.parallel_block && !layer.mlp_norm) {  // one norm for both blocks
      layer.mlp_norm = layer.attention_norm;
      layer.mlp_norm_bias = layer.attention_norm_bias;
    }
  }

  void read_attention(const std::string& at, LayerWeights& layer) const {
    const std::int64_t hidden = config_.hidden_size, head = config_.head_dim;
    const std::int64_t queries = config_.n_heads * head, keys = config_.n_kv_heads * head;
    if (names_.fused_qkv) {
      layer.qkv.parts = {matrix(at + names_.fused_qkv, queries + 2 * keys, hidden)};
      if (hf_.qkv_bias) layer.qkv_bias.parts = {bias(at + names_.fused_qkv, queries + 2 * keys)};
    } else {
      const std::int64_t own = config_.gated_attention ? 2 * queries : queries;
      layer.qkv.parts = {matrix(at + "q_proj", own, hidden), matrix(at + "k_proj", keys, hidden),
                         matrix(at + "v_proj", keys, hidden)};
      if (hf_.qkv_bias)
        layer.qkv_bias.parts = {bias(at + "q_proj", own), bias(at + "k_proj", keys),
                                bias(at + "v_proj", keys)};
    }
    for (Weight* weight : {&layer.qkv, &layer.qkv_bias}) {
      if (!*weight) continue;
      if (names_.fused_qkv) {
        weight->parts.front().order = fused_order_;
      } else {
        weight->parts[0].order = query_order_;
        weight->parts[1].order = key_order_;
      }
      if (config_.gated_attention) split_gates(*weight);
    }
    if (names_.q_norm) {
      const bool wide = names_.wide_qk_norm;
      layer.q_norm.parts = {finder_.vector(at + names_.q_norm + ".weight", wide ? queries : head)};
      layer.k_norm.parts = {finder_.vector(at + names_.k_norm + ".weight", wide ? keys : head)};
    }
    if (names_.sinks) layer.sinks.parts = {finder_.vector(at + names_.sinks, config_.n_heads)};
    layer.output.parts = {matrix(at + names_.output, hidden, queries)};
    if (hf_.output_bias) layer.output_bias.parts = {bias(at + names_.output, hidden)};
  }

  /// The query projection holds each head's queries and then its gates; the gates go to the end.
  void split_gates(Weight& qkv) const {
    Rows gates = qkv.parts[0];
    for (Rows* part : {&qkv.parts[0], &gates}) {
      part->order.clear();
      for (std::int64_t head = 0; head < config_.n_heads; ++head)
        for (std::int64_t i = 0; i < config_.head_dim; ++i)
          part->order.push_back((2 * head + (part == &gates ? 1 : 0)) * config_.head_dim + i);
      (part->is_vector ? part->columns : part->count) = config_.n_heads * config_.head_dim;
    }
    qkv.parts.push_back(std::move(gates));
  }

  /// What goes into the state is ordered as queries, keys, values, gates, and then what the steps
  /// and the decays are made of.
  void read_delta_net(const std::string& at, LayerWeights& layer) const {
    const StateLayers& s = config_.state_layers;
    const std::int64_t hidden = config_.hidden_size, mixed = 2 * s.keys() + s.values();
    if (finder_.has(at + "in_proj_qkvz.weight")) {  // by key head
      const std::int64_t of_head = s.value_heads / s.key_heads;
      layer.state_in.parts = {matrix(at + "in_proj_qkvz", mixed + s.values(), hidden),
                              matrix(at + "in_proj_ba", 2 * s.value_heads, hidden)};
      layer.state_in.parts[0].order = by_key_head(
          {s.key_dim, s.key_dim, of_head * s.value_dim, of_head * s.value_dim}, s.key_heads);
      layer.state_in.parts[1].order = by_key_head({of_head, of_head}, s.key_heads);
    } else {
      layer.state_in.parts = {matrix(at + "in_proj_qkv", mixed, hidden),
                              matrix(at + "in_proj_z", s.values(), hidden),
                              matrix(at + "in_proj_b", s.value_heads, hidden),
                              matrix(at + "in_proj_a", s.value_heads, hidden)};
    }
    layer.conv.parts = {matrix(at + "conv1d", mixed, s.conv_kernel)};
    layer.decay.parts = {finder_.vector(at + "A_log", s.value_heads)};
    layer.step_bias.parts = {finder_.vector(at + "dt_bias", s.value_heads)};
    layer.state_norm.parts = {finder_.vector(at + "norm.weight", s.value_dim)};
    layer.output.parts = {matrix(at + "out_proj", hidden, s.values())};
  }

  /// Rows that lie together for each key head, in pieces of these sizes: piece after piece instead.
  static std::vector<std::int64_t> by_key_head(const std::vector<std::int64_t>& pieces,
                                               std::int64_t key_heads) {
    const auto of_head = std::accumulate(pieces.begin(), pieces.end(), std::int64_t{0});
    std::vector<std::int64_t> order;
    order.reserve(static_cast<std::size_t>(of_head * key_heads));
    std::int64_t before = 0;
    for (const auto piece : pieces) {
      for (std::int64_t head = 0; head < key_heads; ++head)
        for (std::int64_t i = 0; i < piece; ++i) order.push_back(head * of_head + before + i);
      before += piece;
    }
    return order;
  }

  void read_short_conv(const std::string& at, LayerWeights& layer) const {
    const std::int64_t hidden = config_.hidden_size;
    layer.state_in.parts = {matrix(at + "in_proj", 3 * hidden, hidden)};
    layer.conv.parts = {matrix(at + "conv", hidden, config_.state_layers.conv_kernel)};
    layer.output.parts = {matrix(at + "out_proj", hidden, hidden)};
    if (!hf_.state_bias) return;
    layer.state_in_bias.parts = {bias(at + "in_proj", 3 * hidden)};
    layer.conv_bias.parts = {bias(at + "conv", hidden)};
    layer.output_bias.parts = {bias(at + "out_proj", hidden)};
  }

  void read_mlp(const std::string& at, LayerWeights& layer) const {
    const std::int64_t hidden = config_.hidden_size, inner = config_.intermediate_size;
    if (names_.fused_gate_up) {
      layer.gate_up.parts = {matrix(at + names_.fused_gate_up, 2 * inner, hidden)};
    } else {
      if (config_.gated) layer.gate_up.parts.push_back(matrix(at + names_.gate, inner, hidden));
      layer.gate_up.parts.push_back(matrix(at + names_.up, inner, hidden));
    }
    layer.down.parts = {matrix(at + names_.down, hidden, inner)};
    if (hf_.mlp_bias) {
      if (config_.gated) layer.gate_up_bias.parts.push_back(bias(at + names_.gate, inner));
      layer.gate_up_bias.parts.push_back(bias(at + names_.up, inner));
      layer.down_bias.parts = {bias(at + names_.down, hidden)};
    }
    if (config_.activation == Activation::xielu)
      for (const char* name : {"alpha_p", "alpha_n", "beta", "eps"})
        layer.activation.parts.push_back(finder_.vector(at + "act_fn." + name, 1));
  }

  void read_experts(const std::string& at, LayerWeights& layer) const {
    const Experts& experts = config_.experts;
    const std::int64_t hidden = config_.hidden_size, inner = experts.size;
    layer.router.parts = {finder_.matrix(at + names_.router, experts.count, hidden)};
    if (names_.correction)
      layer.router_correction.parts = {finder_.vector(at + names_.correction, experts.count)};
    if (names_.interleaved_experts) return read_interleaved_experts(at, layer);
    if (names_.stacked_gate_up) {
      layer.expert_gate_up.parts =
          finder_.stacked(at + names_.stacked_gate_up, experts.count, 2 * inner, hidden);
      layer.expert_down.parts =
          finder_.stacked(at + names_.stacked_down, experts.count, hidden, inner);
    }
    for (std::int64_t e = 0; !names_.stacked_gate_up && e < experts.count; ++e) {
      const std::string of = at + "experts." + std::to_string(e) + ".";
      layer.expert_gate_up.parts.push_back(matrix(of + names_.expert_gate, inner, hidden));
      layer.expert_gate_up.parts.push_back(matrix(of + names_.expert_up, inner, hidden));
      layer.expert_down.parts.push_back(matrix(of + names_.expert_down, hidden, inner));
    }
    if (experts.shared_size == 0) return;
    const std::string shared = at + names_.shared;
    layer.shared_gate_up.parts = {matrix(shared + names_.gate, experts.shared_size, hidden),
                                  matrix(shared + names_.up, experts.shared_size, hidden)};
    layer.shared_down.parts = {matrix(shared + names_.down, hidden, experts.shared_size)};
    if (names_.shared_gate)
      layer.shared_gate.parts = {finder_.matrix(at + names_.shared_gate, 1, hidden)};
  }

  void read_interleaved_experts(const std::string& at, LayerWeights& layer) const {
    const std::int64_t count = config_.experts.count, inner = config_.experts.size,
                       hidden = config_.hidden_size;
    const std::string gate_up = at + names_.stacked_gate_up, down = at + names_.stacked_down;
    const auto stacked = [&](const std::string& name, std::int64_t rows, std::int64_t columns) {
      return finder_.has(name + "_blocks") ? finder_.stacked_mxfp4(name, count, rows, columns)
                                           : finder_.stacked_transposed(name, count, rows, columns);
    };
    layer.router_bias.parts = {finder_.vector(at + names_.router_bias, count)};
    interleaved_halves(stacked(gate_up, 2 * inner, hidden), layer.expert_gate_up.parts);
    interleaved_halves(finder_.stacked_vectors(gate_up + "_bias", count, 2 * inner),
                       layer.expert_gate_up_bias.parts);
    layer.expert_down.parts = stacked(down, hidden, inner);
    layer.expert_down_bias.parts = finder_.stacked_vectors(down + "_bias", count, hidden);
  }

  const HfConfig& hf_;
  const Config& config_ = hf_.config;
  const HfLayout& names_ = hf_.layout;
  const TensorFinder& finder_;
  std::vector<std::int64_t> fused_order_, query_order_, key_order_;  // empty: as stored
};

/// What stands before the names of the language model's tensors, and before the head's.
struct Prefix {
  const char* model;
  const char* head;
};

Prefix find_prefix(const TensorFinder& finder, const std::string& embedding) {
  // The ordinary one, a model without its head's class, and Gemma 3 with vision, older and newer.
  static constexpr Prefix kPrefixes[] = {{"model.", ""},
                                         {"", ""},
                                         {"language_model.model.", "language_model."},
                                         {"model.language_model.", ""}};
  for (const Prefix& prefix : kPrefixes)
    if (finder.has(prefix.model + embedding)) return prefix;
  return kPrefixes[0];
}

}  // namespace

ModelWeights hf_weights(const HfConfig& hf, const TensorFinder& finder) {
  const Config& config = hf.config;
  const HfLayout& names = hf.layout;
  const Prefix prefix = find_prefix(finder, names.embedding);
  const std::string model = prefix.model;
  const Layers layers(hf, finder);

  ModelWeights weights;
  weights.embedding.parts = {
      finder.matrix(model + names.embedding, config.vocab_size, config.hidden_size)};
  layers.read_norm(model, names.final_norm, weights.final_norm, &weights.final_norm_bias);
  const std::string head = prefix.head + std::string(names.head);
  if (!config.tied_embeddings && (hf.untied_stated || finder.has(head + ".weight"))) {
    weights.head.parts = {finder.matrix(head + ".weight", config.vocab_size, config.hidden_size)};
    if (hf.head_bias) weights.head_bias.parts = {finder.vector(head + ".bias", config.vocab_size)};
  } else {
    weights.head = weights.embedding;
  }
  weights.layers = layers.read_all(model);
  return weights;
}

}  // namespace kvatlas::model
