// SPDX-License-Identifier: Apache-2.0
#include <optional>

#include "analyzer/model/weights.hpp"
#include "base/error.hpp"

namespace kvatlas::model {
namespace {

struct Orders {
  std::vector<std::int64_t> queries, keys;  // empty: as stored
};

/// Whether llama.cpp rotates neighbours for this architecture. Its converter interleaves the halves
/// of every head's rows in q and k where the model itself does not.
bool rotates_neighbours(Architecture architecture) {
  switch (architecture) {
    case Architecture::llama:
    case Architecture::mixtral:
    case Architecture::internlm2:
    case Architecture::arcee:
    case Architecture::cohere2:
    case Architecture::ernie4_5:
    case Architecture::ernie4_5_moe:
    case Architecture::glm4:
    case Architecture::granite:
    case Architecture::granitemoe:
    case Architecture::granitemoehybrid:
    case Architecture::llama4:
    case Architecture::smollm3:
      return true;
    default:
      return false;
  }
}

/// Whether the norm called post_attention_norm is the feed-forward block's own, before it.
bool norms_mlp_after_attention(Architecture architecture) {
  return architecture == Architecture::seed_oss || architecture == Architecture::glm4_moe ||
         architecture == Architecture::gpt_oss || architecture == Architecture::qwen3_next ||
         architecture == Architecture::qwen3_5 || architecture == Architecture::qwen3_5_moe;
}

/// Reads the layers of one file. What a layer may lack is found by its name.
class GgufLayers {
 public:
  GgufLayers(const Config& config, const TensorFinder& finder) : config_(config), finder_(finder) {
    if (rotates_neighbours(config.architecture))
      orders_ = {neighbours_to_halves(config, config.n_heads),
                 neighbours_to_halves(config, config.n_kv_heads)};
  }

  /// Layer `number` of all, which is number `attention` of those with attention.
  LayerWeights read(std::int64_t number, std::optional<std::int64_t> attention) const {
    const std::string at = "blk." + std::to_string(number) + ".";
    const LayerShape shape = config_.shape(attention.value_or(0));
    LayerWeights layer;
    read_norms(at, layer);
    if (!attention)
      read_state_layer(at, layer);
    else if (config_.latent.rank > 0)
      read_latent(at, shape, layer);
    else
      read_attention(at, shape, shape.keys_of == *attention, layer);
    const bool experts = config_.has_experts(number);
    if (experts) read_experts(at, layer);
    if (!experts || config_.experts.beside_dense) read_mlp(at, shape.intermediate_size, layer);
    if (experts && config_.experts.beside_dense) read_beside_dense(at, layer);
    if (config_.layer_input_size > 0) read_layer_input(at, layer);
    if (config_.streams.count > 0) read_streams(at, layer);
    layer.layer_scale = vector_if_there(at + "layer_output_scale.weight", 1);
    return layer;
  }

  Weight vector_if_there(const std::string& name, std::int64_t size) const {
    Weight weight;
    if (finder_.has(name)) weight.parts = {finder_.vector(name, size)};
    return weight;
  }

 private:
  void read_layer_input(const std::string& at, LayerWeights& layer) const {
    const std::int64_t hidden = config_.hidden_size, size = config_.layer_input_size;
    layer.input_gate.parts = {finder_.matrix(at + "inp_gate.weight", size, hidden)};
    layer.input_up.parts = {finder_.matrix(at + "proj.weight", hidden, size)};
    layer.input_norm.parts = {finder_.vector(at + "post_norm.weight", hidden)};
  }

  void read_streams(const std::string& at, LayerWeights& layer) const {
    const std::int64_t hidden = config_.hidden_size, count = config_.streams.count,
                       rank = config_.streams.shortcut_rank;
    const auto matrix = [&](const char* name, std::int64_t rows, std::int64_t columns) {
      return std::vector{finder_.matrix(at + name + ".weight", rows, columns)};
    };
    layer.stream_router.parts = matrix("altup_router", count, hidden);
    layer.stream_router_norm.parts = {finder_.vector(at + "altup_router_norm.weight", hidden)};
    layer.stream_prediction.parts = matrix("altup_predict_coef", count * count, count);
    layer.stream_correction.parts = matrix("altup_correct_coef", count, count);
    layer.stream_scale = vector_if_there(at + "altup_correct_scale.weight", hidden);
    layer.shortcut_down.parts = matrix("laurel_l", rank, hidden);
    layer.shortcut_up.parts = matrix("laurel_r", hidden, rank);
    layer.shortcut_norm.parts = {finder_.vector(at + "laurel_post_norm.weight", hidden)};
  }

  void read_state_layer(const std::string& at, LayerWeights& layer) const {
    const StateLayers& s = config_.state_layers;
    const std::int64_t hidden = config_.hidden_size;
    const auto matrix = [&](const char* name, std::int64_t rows, std::int64_t columns) {
      return finder_.matrix(at + name + ".weight", rows, columns);
    };
    if (s.kind == StateLayers::Kind::short_conv) {
      layer.state_in.parts = {matrix("shortconv.in_proj", 3 * hidden, hidden)};
      layer.conv.parts = {matrix("shortconv.conv", hidden, s.conv_kernel)};
      layer.output.parts = {matrix("shortconv.out_proj", hidden, hidden)};
      return;
    }
    const bool mamba = s.kind == StateLayers::Kind::mamba2;
    const std::int64_t mixed = 2 * s.keys() + s.values(), heads = s.value_heads;
    if (mamba) {
      layer.state_in.parts = {matrix("ssm_in", s.values() + mixed + heads, hidden)};
    } else {
      layer.state_in.parts = {matrix("attn_qkv", mixed, hidden),
                              matrix("attn_gate", s.values(), hidden)};
      if (s.tiled) {
        layer.state_in.parts.push_back(matrix("ssm_beta", heads, hidden));
        layer.state_in.parts.push_back(matrix("ssm_alpha", heads, hidden));
      } else {
        const std::int64_t of_head = heads / s.key_heads;
        layer.state_in.parts.push_back(matrix("ssm_ba", 2 * heads, hidden));
        layer.state_in.parts.back().order = by_head({of_head, of_head}, s.key_heads);
      }
    }
    layer.conv.parts = {matrix("ssm_conv1d", mixed, s.conv_kernel)};
    layer.conv_bias = vector_if_there(at + "ssm_conv1d.bias", mixed);
    layer.decay.parts = {finder_.vector(at + "ssm_a", heads)};
    layer.step_bias.parts = {finder_.vector(at + "ssm_dt.bias", heads)};
    if (mamba) {
      layer.state_skip.parts = {finder_.vector(at + "ssm_d", heads)};
      layer.state_norm.parts =
          finder_.stacked_vectors(at + "ssm_norm.weight", s.key_heads, s.values() / s.key_heads);
    } else {
      layer.state_norm.parts = {finder_.vector(at + "ssm_norm.weight", s.value_dim)};
    }
    layer.output.parts = {matrix("ssm_out", hidden, s.values())};
  }

  /// The projection from the latent is one matrix, or one of keys, each head's transposed, and one
  /// of values.
  void read_latent(const std::string& at, const LayerShape& shape, LayerWeights& layer) const {
    const Latent& sizes = config_.latent;
    const std::int64_t hidden = config_.hidden_size, heads = config_.n_heads;
    const std::int64_t rows = heads * shape.head_dim;
    if (sizes.query_rank > 0) {
      layer.query_down.parts = {finder_.matrix(at + "attn_q_a.weight", sizes.query_rank, hidden)};
      layer.query_norm.parts = {finder_.vector(at + "attn_q_a_norm.weight", sizes.query_rank)};
      layer.query_up.parts = {finder_.matrix(at + "attn_q_b.weight", rows, sizes.query_rank)};
    } else {
      layer.query_up.parts = {finder_.matrix(at + "attn_q.weight", rows, hidden)};
    }
    layer.query_up.parts.front().order = latent_query_order(config_, shape.head_dim, true);
    layer.latent_down.parts = {
        finder_.matrix(at + "attn_kv_a_mqa.weight", sizes.rank + sizes.rotated_dim, hidden)};
    layer.latent_down.parts.front().order = latent_order(config_, true);
    layer.latent_norm.parts = {finder_.vector(at + "attn_kv_a_norm.weight", sizes.rank)};
    if (finder_.has(at + "attn_kv_b.weight")) {
      layer.latent_up.parts = {finder_.matrix(
          at + "attn_kv_b.weight", heads * (sizes.plain_dim + shape.value_dim), sizes.rank)};
    } else {
      const auto keys =
          finder_.stacked_transposed(at + "attn_k_b.weight", heads, sizes.plain_dim, sizes.rank);
      const auto values =
          finder_.stacked(at + "attn_v_b.weight", heads, shape.value_dim, sizes.rank);
      for (std::size_t head = 0; head < keys.size(); ++head) {
        layer.latent_up.parts.push_back(keys[head]);
        layer.latent_up.parts.push_back(values[head]);
      }
    }
    layer.output.parts = {
        finder_.matrix(at + "attn_output.weight", hidden, heads * shape.value_dim)};
  }

  void read_beside_dense(const std::string& at, LayerWeights& layer) const {
    const std::int64_t hidden = config_.hidden_size;
    layer.router_norm.parts = {finder_.vector(at + "ffn_gate_inp.scale", hidden)};
    layer.router_scale = vector_if_there(at + "ffn_down_exps.scale", config_.experts.count);
    layer.dense_norm.parts = {finder_.vector(at + "post_ffw_norm_1.weight", hidden)};
    layer.expert_norm.parts = {finder_.vector(at + "pre_ffw_norm_2.weight", hidden)};
    layer.post_expert_norm.parts = {finder_.vector(at + "post_ffw_norm_2.weight", hidden)};
  }

  void read_norms(const std::string& at, LayerWeights& layer) const {
    const auto norm = [&](const char* name, Weight& weight, Weight* bias) {
      weight = vector_if_there(at + name + ".weight", config_.hidden_size);
      if (bias) *bias = vector_if_there(at + name + ".bias", config_.hidden_size);
    };
    norm("attn_norm", layer.attention_norm, &layer.attention_norm_bias);
    const bool own = norms_mlp_after_attention(config_.architecture);
    norm(own ? "post_attention_norm" : "ffn_norm", layer.mlp_norm, &layer.mlp_norm_bias);
    if (!own) norm("post_attention_norm", layer.post_attention_norm, nullptr);
    norm("post_ffw_norm", layer.post_mlp_norm, nullptr);
    if (config_.parallel_block && !layer.mlp_norm) {  // one norm for both blocks
      layer.mlp_norm = layer.attention_norm;
      layer.mlp_norm_bias = layer.attention_norm_bias;
    }
    // Without a norm on either side a block is no block of any model.
    if (!layer.attention_norm && !layer.post_attention_norm)
      finder_.vector(at + "attn_norm.weight", config_.hidden_size);
    if (!layer.mlp_norm && !layer.post_mlp_norm)
      finder_.vector(at + "ffn_norm.weight", config_.hidden_size);
    const Architecture kind = config_.architecture;
    if (kind == Architecture::gemma2 || kind == Architecture::gemma3 ||
        kind == Architecture::gemma3n || kind == Architecture::gemma4)
      for (const char* name : {"attn_norm", "ffn_norm", "post_attention_norm", "post_ffw_norm"})
        finder_.vector(at + name + ".weight", config_.hidden_size);
  }

  void read_attention(const std::string& at, const LayerShape& shape, bool own_keys,
                      LayerWeights& layer) const {
    const std::int64_t hidden = config_.hidden_size, head = shape.head_dim;
    const std::int64_t queries = config_.n_heads * head, keys = shape.kv_heads * head;
    if (finder_.has(at + "attn_qkv.weight")) {
      layer.qkv.parts = {finder_.matrix(at + "attn_qkv.weight", queries + 2 * keys, hidden)};
      layer.qkv_bias = vector_if_there(at + "attn_qkv.bias", queries + 2 * keys);
    } else {
      layer.qkv.parts = {finder_.matrix(at + "attn_q.weight",
                                        config_.gated_attention ? 2 * queries : queries, hidden)};
      if (own_keys) layer.qkv.parts.push_back(finder_.matrix(at + "attn_k.weight", keys, hidden));
      if (own_keys && !shape.one_projection)
        layer.qkv.parts.push_back(finder_.matrix(at + "attn_v.weight", keys, hidden));
      if (config_.architecture == Architecture::qwen2 || finder_.has(at + "attn_q.bias"))
        layer.qkv_bias.parts = {finder_.vector(at + "attn_q.bias", queries),
                                finder_.vector(at + "attn_k.bias", keys),
                                finder_.vector(at + "attn_v.bias", keys)};
      for (Weight* weight : {&layer.qkv, &layer.qkv_bias}) {
        if (!*weight) continue;
        weight->parts[0].order = orders_.queries;
        if (own_keys) weight->parts[1].order = orders_.keys;
        if (config_.gated_attention) split_gates(config_, *weight);
      }
    }
    read_qk_norms(at, shape, own_keys, layer);
    layer.sinks = vector_if_there(at + "attn_sinks.weight", config_.n_heads);
    layer.output.parts = {finder_.matrix(at + "attn_output.weight", hidden, queries)};
    layer.output_bias = vector_if_there(at + "attn_output.bias", hidden);
  }

  void read_qk_norms(const std::string& at, const LayerShape& shape, bool own_keys,
                     LayerWeights& layer) const {
    const std::string q = at + "attn_q_norm.weight", k = at + "attn_k_norm.weight";
    const Architecture kind = config_.architecture;
    if (kind == Architecture::stablelm && finder_.has(q))
      fail(ErrorCode::unsupported, "tensor ", quoted(q),
           ": norms of each head's own are not supported");
    const bool wide = kind == Architecture::olmo2 || kind == Architecture::olmo3 ||
                      kind == Architecture::olmoe || kind == Architecture::minimax_m2;
    const bool needed = wide || kind == Architecture::qwen3 || kind == Architecture::gemma3 ||
                        kind == Architecture::qwen3_moe || kind == Architecture::exaone4 ||
                        kind == Architecture::dots1 || kind == Architecture::hunyuan_v1_dense ||
                        kind == Architecture::gemma3n || kind == Architecture::gemma4 ||
                        kind == Architecture::lfm2 || config_.gated_attention;
    if (!needed && !finder_.has(q)) return;
    const std::int64_t head = shape.head_dim;
    layer.q_norm.parts = {finder_.vector(q, wide ? config_.n_heads * head : head)};
    if (own_keys) layer.k_norm.parts = {finder_.vector(k, wide ? shape.kv_heads * head : head)};
  }

  void read_mlp(const std::string& at, std::int64_t inner, LayerWeights& layer) const {
    const std::int64_t hidden = config_.hidden_size;
    const bool fused =
        config_.architecture == Architecture::phi3 || config_.architecture == Architecture::glm4;
    if (fused) {  // gate and up under up's name
      layer.gate_up.parts = {finder_.matrix(at + "ffn_up.weight", 2 * inner, hidden)};
    } else {
      if (config_.gated)
        layer.gate_up.parts.push_back(finder_.matrix(at + "ffn_gate.weight", inner, hidden));
      layer.gate_up.parts.push_back(finder_.matrix(at + "ffn_up.weight", inner, hidden));
    }
    layer.down.parts = {finder_.matrix(at + "ffn_down.weight", hidden, inner)};
    if (finder_.has(at + "ffn_up.bias")) {
      if (config_.gated)
        layer.gate_up_bias.parts.push_back(finder_.vector(at + "ffn_gate.bias", inner));
      layer.gate_up_bias.parts.push_back(finder_.vector(at + "ffn_up.bias", inner));
    }
    layer.down_bias = vector_if_there(at + "ffn_down.bias", hidden);
  }

  void read_experts(const std::string& at, LayerWeights& layer) const {
    const Experts& experts = config_.experts;
    const std::int64_t hidden = config_.hidden_size, count = experts.count, inner = experts.size;
    layer.router.parts = {finder_.matrix(at + "ffn_gate_inp.weight", count, hidden)};
    layer.router_correction = vector_if_there(at + "exp_probs_b.bias", count);
    if (finder_.has(at + "ffn_gate_up_exps.weight")) {
      layer.expert_gate_up.parts =
          finder_.stacked(at + "ffn_gate_up_exps.weight", count, 2 * inner, hidden);
    } else {
      const auto gates = finder_.stacked(at + "ffn_gate_exps.weight", count, inner, hidden);
      const auto ups = finder_.stacked(at + "ffn_up_exps.weight", count, inner, hidden);
      for (std::size_t e = 0; e < gates.size(); ++e) {
        layer.expert_gate_up.parts.push_back(gates[e]);
        layer.expert_gate_up.parts.push_back(ups[e]);
      }
    }
    if (finder_.has(at + "ffn_gate_exps.bias")) {
      const auto gate_biases = finder_.stacked_vectors(at + "ffn_gate_exps.bias", count, inner);
      const auto up_biases = finder_.stacked_vectors(at + "ffn_up_exps.bias", count, inner);
      for (std::size_t e = 0; e < gate_biases.size(); ++e) {
        layer.expert_gate_up_bias.parts.push_back(gate_biases[e]);
        layer.expert_gate_up_bias.parts.push_back(up_biases[e]);
      }
      layer.expert_down_bias.parts =
          finder_.stacked_vectors(at + "ffn_down_exps.bias", count, hidden);
    }
    layer.router_bias = vector_if_there(at + "ffn_gate_inp.bias", count);
    layer.expert_down.parts = finder_.stacked(at + "ffn_down_exps.weight", count, hidden, inner);
    if (experts.shared_size == 0) return;
    layer.shared_gate_up.parts = {
        finder_.matrix(at + "ffn_gate_shexp.weight", experts.shared_size, hidden),
        finder_.matrix(at + "ffn_up_shexp.weight", experts.shared_size, hidden)};
    layer.shared_down.parts = {
        finder_.matrix(at + "ffn_down_shexp.weight", hidden, experts.shared_size)};
    if (finder_.has(at + "ffn_gate_inp_shexp.weight"))
      layer.shared_gate.parts = {finder_.matrix(at + "ffn_gate_inp_shexp.weight", 1, hidden)};
  }

  const Config& config_;
  const TensorFinder& finder_;
  Orders orders_;
};

}  // namespace

ModelWeights gguf_weights(const Config& config, const TensorFinder& finder) {
  ModelWeights weights;
  weights.embedding.parts = {
      finder.matrix("token_embd.weight", config.vocab_size, config.hidden_size)};
  const GgufLayers layers(config, finder);
  const bool lfm2 =
      finder.has("token_embd_norm.weight") && config.architecture == Architecture::lfm2;
  weights.final_norm.parts = {
      finder.vector(lfm2 ? "token_embd_norm.weight" : "output_norm.weight", config.hidden_size)};
  weights.final_norm_bias = layers.vector_if_there("output_norm.bias", config.hidden_size);
  if (finder.has("output.weight"))
    weights.head.parts = {finder.matrix("output.weight", config.vocab_size, config.hidden_size)};
  else
    weights.head = weights.embedding;
  weights.head_bias = layers.vector_if_there("output.bias", config.vocab_size);
  weights.layers =
      gather_layers(config, [&](std::int64_t number, std::optional<std::int64_t> attention) {
        return layers.read(number, attention);
      });
  if (const auto size = config.layer_input_size; size > 0) {
    const std::int64_t all = config.n_layers * size;
    weights.layer_embedding.parts = {
        finder.matrix("per_layer_token_embd.weight", config.layer_input_vocab, all)};
    weights.layer_projection.parts = {
        finder.matrix("per_layer_model_proj.weight", all, config.hidden_size)};
    weights.layer_projection_norm.parts = {finder.vector("per_layer_proj_norm.weight", size)};
  }
  if (const auto others = config.streams.count - 1; others > 0) {
    weights.stream_starts.parts =
        finder.stacked("altup_proj.weight", others, config.hidden_size, config.hidden_size);
    weights.stream_ends.parts =
        finder.stacked("altup_unembd_proj.weight", others, config.hidden_size, config.hidden_size);
  }
  return weights;
}

}  // namespace kvatlas::model
