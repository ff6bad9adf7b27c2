// SPDX-License-Identifier: Apache-2.0
#include "analyzer/model/weights.hpp"
#include "base/error.hpp"

namespace kvatlas::model {
namespace {

struct Orders {
  std::vector<std::int64_t> queries, keys;  // empty: as stored
};

LayerWeights read_layer(const Config& config, const TensorFinder& finder, const std::string& at,
                        const Orders& orders) {
  const std::int64_t hidden = config.hidden_size, inner = config.intermediate_size;
  const std::int64_t queries = config.n_heads * config.head_dim;
  const std::int64_t keys = config.n_kv_heads * config.head_dim;
  LayerWeights layer;
  layer.attention_norm.parts = {finder.vector(at + "attn_norm.weight", hidden)};

  if (finder.has(at + "attn_qkv.weight")) {
    layer.qkv.parts = {finder.matrix(at + "attn_qkv.weight", queries + 2 * keys, hidden)};
    if (finder.has(at + "attn_qkv.bias"))
      layer.qkv_bias.parts = {finder.vector(at + "attn_qkv.bias", queries + 2 * keys)};
  } else {
    layer.qkv.parts = {finder.matrix(at + "attn_q.weight", queries, hidden),
                       finder.matrix(at + "attn_k.weight", keys, hidden),
                       finder.matrix(at + "attn_v.weight", keys, hidden)};
    if (config.architecture == Architecture::qwen2 || finder.has(at + "attn_q.bias"))
      layer.qkv_bias.parts = {finder.vector(at + "attn_q.bias", queries),
                              finder.vector(at + "attn_k.bias", keys),
                              finder.vector(at + "attn_v.bias", keys)};
    for (Weight* weight : {&layer.qkv, &layer.qkv_bias}) {
      if (!*weight) continue;
      weight->parts[0].order = orders.queries;
      weight->parts[1].order = orders.keys;
    }
  }
  if (config.architecture == Architecture::qwen3 || config.architecture == Architecture::gemma3) {
    layer.q_norm.parts = {finder.vector(at + "attn_q_norm.weight", config.head_dim)};
    layer.k_norm.parts = {finder.vector(at + "attn_k_norm.weight", config.head_dim)};
  }
  layer.output.parts = {finder.matrix(at + "attn_output.weight", hidden, queries)};
  if (finder.has(at + "attn_output.bias"))
    layer.output_bias.parts = {finder.vector(at + "attn_output.bias", hidden)};

  layer.mlp_norm.parts = {finder.vector(at + "ffn_norm.weight", hidden)};
  if (config.architecture == Architecture::gemma2 || config.architecture == Architecture::gemma3) {
    layer.post_attention_norm.parts = {finder.vector(at + "post_attention_norm.weight", hidden)};
    layer.post_mlp_norm.parts = {finder.vector(at + "post_ffw_norm.weight", hidden)};
  }

  if (config.architecture == Architecture::phi3)  // gate and up fused under up's name
    layer.gate_up.parts = {finder.matrix(at + "ffn_up.weight", 2 * inner, hidden)};
  else
    layer.gate_up.parts = {finder.matrix(at + "ffn_gate.weight", inner, hidden),
                           finder.matrix(at + "ffn_up.weight", inner, hidden)};
  layer.down.parts = {finder.matrix(at + "ffn_down.weight", hidden, inner)};
  if (finder.has(at + "ffn_gate.bias"))
    layer.gate_up_bias.parts = {finder.vector(at + "ffn_gate.bias", inner),
                                finder.vector(at + "ffn_up.bias", inner)};
  if (finder.has(at + "ffn_down.bias"))
    layer.down_bias.parts = {finder.vector(at + "ffn_down.bias", hidden)};
  return layer;
}

}  // namespace

ModelWeights gguf_weights(const Config& config, const TensorFinder& finder) {
  ModelWeights weights;
  weights.embedding.parts = {
      finder.matrix("token_embd.weight", config.vocab_size, config.hidden_size)};
  weights.final_norm.parts = {finder.vector("output_norm.weight", config.hidden_size)};
  if (finder.has("output.weight"))
    weights.head.parts = {finder.matrix("output.weight", config.vocab_size, config.hidden_size)};
  else
    weights.head = weights.embedding;

  // llama.cpp rotates neighbours in the llama kinds, so its converter interleaves the halves of
  // every head's rows in q and k.
  Orders orders;
  if (config.architecture == Architecture::llama || config.architecture == Architecture::internlm2)
    orders = {neighbours_to_halves(config, config.n_heads),
              neighbours_to_halves(config, config.n_kv_heads)};
  for (std::int64_t i = 0; i < config.n_layers; ++i)
    weights.layers.push_back(read_layer(config, finder, "blk." + std::to_string(i) + ".", orders));
  return weights;
}

}  // namespace kvatlas::model
