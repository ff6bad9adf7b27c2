// SPDX-License-Identifier: Apache-2.0
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
    case Architecture::smollm3:
      return true;
    default:
      return false;
  }
}

/// Whether the norm called post_attention_norm is the feed-forward block's own, before it.
bool norms_mlp_after_attention(Architecture architecture) {
  return architecture == Architecture::seed_oss || architecture == Architecture::glm4_moe ||
         architecture == Architecture::gpt_oss;
}

/// Reads the layers of one file. What a layer may lack is found by its name.
class Layers {
 public:
  Layers(const Config& config, const TensorFinder& finder) : config_(config), finder_(finder) {
    if (rotates_neighbours(config.architecture))
      orders_ = {neighbours_to_halves(config, config.n_heads),
                 neighbours_to_halves(config, config.n_kv_heads)};
  }

  LayerWeights read(std::int64_t index, const std::string& at) const {
    LayerWeights layer;
    read_norms(at, layer);
    read_attention(at, layer);
    if (config_.has_experts(index))
      read_experts(at, layer);
    else
      read_mlp(at, layer);
    return layer;
  }

  Weight vector_if_there(const std::string& name, std::int64_t size) const {
    Weight weight;
    if (finder_.has(name)) weight.parts = {finder_.vector(name, size)};
    return weight;
  }

 private:
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
    if (kind == Architecture::gemma2 || kind == Architecture::gemma3)
      for (const char* name : {"attn_norm", "ffn_norm", "post_attention_norm", "post_ffw_norm"})
        finder_.vector(at + name + ".weight", config_.hidden_size);
  }

  void read_attention(const std::string& at, LayerWeights& layer) const {
    const std::int64_t hidden = config_.hidden_size, head = config_.head_dim;
    const std::int64_t queries = config_.n_heads * head, keys = config_.n_kv_heads * head;
    if (finder_.has(at + "attn_qkv.weight")) {
      layer.qkv.parts = {finder_.matrix(at + "attn_qkv.weight", queries + 2 * keys, hidden)};
      layer.qkv_bias = vector_if_there(at + "attn_qkv.bias", queries + 2 * keys);
    } else {
      layer.qkv.parts = {finder_.matrix(at + "attn_q.weight", queries, hidden),
                         finder_.matrix(at + "attn_k.weight", keys, hidden),
                         finder_.matrix(at + "attn_v.weight", keys, hidden)};
      if (config_.architecture == Architecture::qwen2 || finder_.has(at + "attn_q.bias"))
        layer.qkv_bias.parts = {finder_.vector(at + "attn_q.bias", queries),
                                finder_.vector(at + "attn_k.bias", keys),
                                finder_.vector(at + "attn_v.bias", keys)};
      for (Weight* weight : {&layer.qkv, &layer.qkv_bias}) {
        if (!*weight) continue;
        weight->parts[0].order = orders_.queries;
        weight->parts[1].order = orders_.keys;
      }
    }
    read_qk_norms(at, queries, keys, layer);
    layer.sinks = vector_if_there(at + "attn_sinks.weight", config_.n_heads);
    layer.output.parts = {finder_.matrix(at + "attn_output.weight", hidden, queries)};
    layer.output_bias = vector_if_there(at + "attn_output.bias", hidden);
  }

  void read_qk_norms(const std::string& at, std::int64_t queries, std::int64_t keys,
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
                        kind == Architecture::dots1 || kind == Architecture::hunyuan_v1_dense;
    if (!needed && !finder_.has(q)) return;
    layer.q_norm.parts = {finder_.vector(q, wide ? queries : config_.head_dim)};
    layer.k_norm.parts = {finder_.vector(k, wide ? keys : config_.head_dim)};
  }

  void read_mlp(const std::string& at, LayerWeights& layer) const {
    const std::int64_t hidden = config_.hidden_size, inner = config_.intermediate_size;
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
    const auto gates = finder_.stacked(at + "ffn_gate_exps.weight", count, inner, hidden);
    const auto ups = finder_.stacked(at + "ffn_up_exps.weight", count, inner, hidden);
    for (std::size_t e = 0; e < gates.size(); ++e) {
      layer.expert_gate_up.parts.push_back(gates[e]);
      layer.expert_gate_up.parts.push_back(ups[e]);
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
  const Layers layers(config, finder);
  weights.final_norm.parts = {finder.vector("output_norm.weight", config.hidden_size)};
  weights.final_norm_bias = layers.vector_if_there("output_norm.bias", config.hidden_size);
  if (finder.has("output.weight"))
    weights.head.parts = {finder.matrix("output.weight", config.vocab_size, config.hidden_size)};
  else
    weights.head = weights.embedding;
  weights.head_bias = layers.vector_if_there("output.bias", config.vocab_size);
  for (std::int64_t i = 0; i < config.n_layers; ++i)
    weights.layers.push_back(layers.read(i, "blk." + std::to_string(i) + "."));
  return weights;
}

}  // namespace kvatlas::model
