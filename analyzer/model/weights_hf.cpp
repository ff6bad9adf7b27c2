// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <optional>

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
class HfLayers {
 public:
  HfLayers(const HfConfig& hf, const TensorFinder& finder) : hf_(hf), finder_(finder) {
    if (names_.qkv_by_kv_head) fused_order_ = order_by_kv_head(config_);
    if (names_.neighbours_rotate) {
      query_order_ = neighbours_to_halves(config_, config_.n_heads);
      key_order_ = neighbours_to_halves(config_, config_.n_kv_heads);
    }
  }

  std::vector<LayerWeights> read_all(const std::string& model) const {
    return gather_layers(config_, [&](std::int64_t number, std::optional<std::int64_t> attention) {
      return read(number, model + "layers." + std::to_string(number) + ".", attention);
    });
  }

  /// Layer `number` of all, which is number `attention` of those with attention.
  LayerWeights read(std::int64_t number, const std::string& at,
                    std::optional<std::int64_t> attention) const {
    LayerWeights layer;
    read_norms(at, layer);
    const LayerShape shape = config_.shape(attention.value_or(0));
    if (!attention)
      read_state_layer(at, layer);
    else if (config_.latent.rank > 0)
      read_latent(at + names_.attention, shape, layer);
    else
      read_attention(at + names_.attention, shape, shape.keys_of == *attention, layer);
    const bool experts = config_.has_experts(number);
    if (experts) read_experts(at, layer);
    if (!experts || config_.experts.beside_dense)
      read_mlp(at + names_.mlp, shape.intermediate_size, layer);
    if (experts && config_.experts.beside_dense) read_beside_dense(at, layer);
    if (config_.layer_input_size > 0) {
      layer.input_gate.parts = {
          matrix(at + "per_layer_input_gate", config_.layer_input_size, config_.hidden_size)};
      layer.input_up.parts = {
          matrix(at + "per_layer_projection", config_.hidden_size, config_.layer_input_size)};
      read_norm(at, "post_per_layer_input_norm", layer.input_norm, nullptr);
    }
    if (config_.streams.count > 0) read_streams(at, layer);
    if (names_.layer_scale) layer.layer_scale.parts = {finder_.vector(at + names_.layer_scale, 1)};
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
  void read_streams(const std::string& at, LayerWeights& layer) const {
    const std::int64_t hidden = config_.hidden_size, count = config_.streams.count,
                       rank = config_.streams.shortcut_rank;
    layer.stream_router.parts = {matrix(at + "altup.modality_router", count, hidden)};
    read_norm(at, "altup.router_norm", layer.stream_router_norm, nullptr);
    layer.stream_prediction.parts = {matrix(at + "altup.prediction_coefs", count * count, count)};
    layer.stream_correction.parts = {matrix(at + "altup.correction_coefs", count, count)};
    if (config_.streams.scaled)
      layer.stream_scale.parts = {finder_.vector(at + "altup.correct_output_scale", hidden)};
    layer.shortcut_down.parts = {matrix(at + "laurel.linear_left", rank, hidden)};
    layer.shortcut_up.parts = {matrix(at + "laurel.linear_right", hidden, rank)};
    read_norm(at, "laurel.post_laurel_norm", layer.shortcut_norm, nullptr);
  }

  /// As it is, or with the scales that lie beside it.
  Rows matrix(const std::string& name, std::int64_t rows, std::int64_t columns) const {
    const std::string weight = name + ".weight";
    if (finder_.has(weight + "_global_scale") || finder_.has(weight + "_scale_2"))
      return finder_.nvfp4(name, rows, columns);
    if (hf_.packed && (finder_.has(name + ".qweight") || finder_.has(weight + "_packed")))
      return finder_.packed(name, rows, columns, *hf_.packed);
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

  void read_state_layer(const std::string& at, LayerWeights& layer) const {
    switch (config_.state_layers.kind) {
      case StateLayers::Kind::none:
        break;
      case StateLayers::Kind::delta_net:
        return read_delta_net(at + "linear_attn.", layer);
      case StateLayers::Kind::short_conv:
        return read_short_conv(at + "conv.", layer);
      case StateLayers::Kind::mamba2:
        return read_mamba2(at + "mamba.", layer);
    }
  }

  void read_latent(const std::string& at, const LayerShape& shape, LayerWeights& layer) const {
    const Latent& sizes = config_.latent;
    const std::int64_t hidden = config_.hidden_size, heads = config_.n_heads;
    const std::int64_t rows = heads * shape.head_dim;
    if (sizes.query_rank > 0) {
      layer.query_down.parts = {matrix(at + "q_a_proj", sizes.query_rank, hidden)};
      layer.query_norm.parts = {finder_.vector(at + "q_a_layernorm.weight", sizes.query_rank)};
      layer.query_up.parts = {matrix(at + "q_b_proj", rows, sizes.query_rank)};
    } else {
      layer.query_up.parts = {matrix(at + "q_proj", rows, hidden)};
    }
    layer.query_up.parts.front().order =
        latent_query_order(config_, shape.head_dim, names_.neighbours_rotate);
    layer.latent_down.parts = {
        matrix(at + "kv_a_proj_with_mqa", sizes.rank + sizes.rotated_dim, hidden)};
    layer.latent_down.parts.front().order = latent_order(config_, names_.neighbours_rotate);
    layer.latent_norm.parts = {finder_.vector(at + "kv_a_layernorm.weight", sizes.rank)};
    layer.latent_up.parts = {
        matrix(at + "kv_b_proj", heads * (sizes.plain_dim + shape.value_dim), sizes.rank)};
    layer.output.parts = {matrix(at + names_.output, hidden, heads * shape.value_dim)};
  }

  void read_attention(const std::string& at, const LayerShape& shape, bool own_keys,
                      LayerWeights& layer) const {
    const std::int64_t hidden = config_.hidden_size, head = shape.head_dim;
    const std::int64_t queries = config_.n_heads * head, keys = shape.kv_heads * head;
    if (names_.fused_qkv) {
      layer.qkv.parts = {matrix(at + names_.fused_qkv, queries + 2 * keys, hidden)};
      if (hf_.qkv_bias) layer.qkv_bias.parts = {bias(at + names_.fused_qkv, queries + 2 * keys)};
    } else {
      const std::int64_t own = config_.gated_attention ? 2 * queries : queries;
      const auto add = [&](const char* name, std::int64_t rows) {
        layer.qkv.parts.push_back(matrix(at + name, rows, hidden));
        if (hf_.qkv_bias) layer.qkv_bias.parts.push_back(bias(at + name, rows));
      };
      add("q_proj", own);
      if (own_keys) add("k_proj", keys);
      if (own_keys && !shape.one_projection) add("v_proj", keys);
    }
    for (Weight* weight : {&layer.qkv, &layer.qkv_bias}) {
      if (!*weight) continue;
      if (names_.fused_qkv) {
        weight->parts.front().order = fused_order_;
      } else {
        weight->parts[0].order = query_order_;
        if (own_keys) weight->parts[1].order = key_order_;
      }
      if (config_.gated_attention) split_gates(config_, *weight);
    }
    if (names_.q_norm) {
      const bool wide = names_.wide_qk_norm;
      layer.q_norm.parts = {finder_.vector(at + names_.q_norm + ".weight", wide ? queries : head)};
      if (own_keys)
        layer.k_norm.parts = {finder_.vector(at + names_.k_norm + ".weight", wide ? keys : head)};
    }
    if (names_.sinks) layer.sinks.parts = {finder_.vector(at + names_.sinks, config_.n_heads)};
    layer.output.parts = {matrix(at + names_.output, hidden, queries)};
    if (hf_.output_bias) layer.output_bias.parts = {bias(at + names_.output, hidden)};
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
      layer.state_in.parts[0].order = by_head(
          {s.key_dim, s.key_dim, of_head * s.value_dim, of_head * s.value_dim}, s.key_heads);
      layer.state_in.parts[1].order = by_head({of_head, of_head}, s.key_heads);
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

  /// What goes into the state is ordered as gates, values, keys, queries and steps.
  void read_mamba2(const std::string& at, LayerWeights& layer) const {
    const StateLayers& s = config_.state_layers;
    const std::int64_t hidden = config_.hidden_size, mixed = s.values() + 2 * s.keys();
    const std::int64_t all = s.values() + mixed + s.value_heads;
    layer.state_in.parts = {matrix(at + "in_proj", all, hidden)};
    if (hf_.state_bias) layer.state_in_bias.parts = {bias(at + "in_proj", all)};
    layer.conv.parts = {matrix(at + "conv1d", mixed, s.conv_kernel)};
    if (hf_.conv_bias) layer.conv_bias.parts = {bias(at + "conv1d", mixed)};
    layer.decay.parts = {finder_.vector(at + "A_log", s.value_heads)};
    layer.step_bias.parts = {finder_.vector(at + "dt_bias", s.value_heads)};
    layer.state_skip.parts = {finder_.vector(at + "D", s.value_heads)};
    layer.state_norm.parts = {finder_.vector(at + "norm.weight", s.values())};
    layer.output.parts = {matrix(at + "out_proj", hidden, s.values())};
    if (hf_.state_bias) layer.output_bias.parts = {bias(at + "out_proj", hidden)};
  }

  /// Of a block that is not one of many experts.
  std::vector<Rows> gate_up(const std::string& at, std::int64_t inner) const {
    const std::int64_t hidden = config_.hidden_size;
    if (names_.fused_gate_up) return {matrix(at + names_.fused_gate_up, 2 * inner, hidden)};
    if (!config_.gated) return {matrix(at + names_.up, inner, hidden)};
    return {matrix(at + names_.gate, inner, hidden), matrix(at + names_.up, inner, hidden)};
  }

  void read_mlp(const std::string& at, std::int64_t inner, LayerWeights& layer) const {
    const std::int64_t hidden = config_.hidden_size;
    layer.gate_up.parts = gate_up(at, inner);
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

  void read_beside_dense(const std::string& at, LayerWeights& layer) const {
    const std::string router = at + "router.";
    layer.router_norm.parts = {finder_.vector(router + "scale", config_.hidden_size)};
    layer.router_scale.parts = {finder_.vector(router + "per_expert_scale", config_.experts.count)};
    read_norm(at, "post_feedforward_layernorm_1", layer.dense_norm, nullptr);
    read_norm(at, "pre_feedforward_layernorm_2", layer.expert_norm, nullptr);
    read_norm(at, "post_feedforward_layernorm_2", layer.post_expert_norm, nullptr);
  }

  void read_experts(const std::string& of_layer, LayerWeights& layer) const {
    const std::string at = of_layer + names_.sparse;
    const Experts& experts = config_.experts;
    const std::int64_t hidden = config_.hidden_size, inner = experts.size;
    layer.router.parts = {finder_.matrix(at + names_.router, experts.count, hidden)};
    if (names_.correction)
      layer.router_correction.parts = {finder_.vector(at + names_.correction, experts.count)};
    if (names_.interleaved_experts) return read_interleaved_experts(at, layer);
    if (names_.stacked_gate_up) {
      const auto stacked =
          names_.transposed_experts ? &TensorFinder::stacked_transposed : &TensorFinder::stacked;
      layer.expert_gate_up.parts =
          (finder_.*stacked)(at + names_.stacked_gate_up, experts.count, 2 * inner, hidden);
      layer.expert_down.parts =
          (finder_.*stacked)(at + names_.stacked_down, experts.count, hidden, inner);
    }
    for (std::int64_t e = 0; !names_.stacked_gate_up && e < experts.count; ++e) {
      const std::string of = at + "experts." + std::to_string(e) + ".";
      layer.expert_gate_up.parts.push_back(matrix(of + names_.expert_gate, inner, hidden));
      layer.expert_gate_up.parts.push_back(matrix(of + names_.expert_up, inner, hidden));
      layer.expert_down.parts.push_back(matrix(of + names_.expert_down, hidden, inner));
    }
    if (experts.shared_size == 0) return;
    const std::string shared = names_.shared ? at + names_.shared : of_layer + names_.mlp;
    layer.shared_gate_up.parts = gate_up(shared, experts.shared_size);
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

Prefix find_prefix(const std::function<bool(const std::string&)>& has,
                   const std::string& embedding) {
  // The ordinary one, a model without its head's class, and Gemma 3 with vision, older and newer.
  static constexpr Prefix kPrefixes[] = {{"model.", ""},
                                         {"", ""},
                                         {"language_model.model.", "language_model."},
                                         {"model.language_model.", ""}};
  for (const Prefix& prefix : kPrefixes)
    if (has(prefix.model + embedding)) return prefix;
  return kPrefixes[0];
}

}  // namespace

std::vector<std::string> hf_attention_names(const HfConfig& hf,
                                            const std::function<bool(const std::string&)>& has) {
  const Config& config = hf.config;
  const std::string model = find_prefix(has, hf.layout.embedding).model;
  std::vector<std::string> names;
  for (std::int64_t layer = 0; layer < config.n_layers; ++layer) {
    const auto number = config.layer_numbers.empty()
                            ? layer
                            : config.layer_numbers[static_cast<std::size_t>(layer)];
    names.push_back(model + "layers." + std::to_string(number) + "." + hf.layout.attention);
  }
  return names;
}

ModelWeights hf_weights(const HfConfig& hf, const TensorFinder& finder) {
  const Config& config = hf.config;
  const HfLayout& names = hf.layout;
  const Prefix prefix =
      find_prefix([&](const std::string& name) { return finder.has(name); }, names.embedding);
  const std::string model = prefix.model;
  const HfLayers layers(hf, finder);

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
  if (const auto size = config.layer_input_size; size > 0) {
    const std::int64_t all = config.n_layers * size;
    weights.layer_embedding.parts = {
        finder.matrix(model + "embed_tokens_per_layer.weight", config.layer_input_vocab, all)};
    weights.layer_projection.parts = {
        finder.matrix(model + "per_layer_model_projection.weight", all, config.hidden_size)};
    weights.layer_projection_norm.parts = {
        finder.vector(model + "per_layer_projection_norm.weight", size)};
  }
  for (std::int64_t i = 0; i + 1 < config.streams.count; ++i) {
    const auto of_stream = [&](const char* name, Weight& weight) {
      weight.parts.push_back(finder.matrix(model + name + std::to_string(i) + ".weight",
                                           config.hidden_size, config.hidden_size));
    };
    of_stream("altup_projections.", weights.stream_starts);
    of_stream("altup_unembed_projections.", weights.stream_ends);
  }
  return weights;
}

}  // namespace kvatlas::model
