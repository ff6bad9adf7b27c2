// SPDX-License-Identifier: Apache-2.0
#include "analyzer/model/weights.hpp"
#include "base/error.hpp"

namespace kvatlas::model {
namespace {

/// The sizes that shapes are made of.
struct Sizes {
  explicit Sizes(const Config& config)
      : hidden(config.hidden_size),
        queries(config.n_heads * config.head_dim),
        keys(config.n_kv_heads * config.head_dim),
        inner(config.intermediate_size),
        head(config.head_dim) {}
  std::int64_t hidden, queries, keys, inner, head;
};

/// InternLM2 stores, for each KV head, its query heads, then its key, then its value head.
std::vector<std::int64_t> internlm2_order(const Config& config) {
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

LayerWeights internlm2_layer(const HfConfig& hf, const TensorFinder& finder, const std::string& at,
                             const std::vector<std::int64_t>& order) {
  const Sizes n(hf.config);
  LayerWeights layer;
  layer.attention_norm.parts = {finder.vector(at + "attention_norm.weight", n.hidden)};
  layer.qkv.parts = {finder.matrix(at + "attention.wqkv.weight", n.queries + 2 * n.keys, n.hidden)};
  layer.qkv.parts.front().order = order;
  layer.output.parts = {finder.matrix(at + "attention.wo.weight", n.hidden, n.queries)};
  if (hf.qkv_bias) {
    layer.qkv_bias.parts = {finder.vector(at + "attention.wqkv.bias", n.queries + 2 * n.keys)};
    layer.qkv_bias.parts.front().order = order;
    layer.output_bias.parts = {finder.vector(at + "attention.wo.bias", n.hidden)};
  }
  layer.mlp_norm.parts = {finder.vector(at + "ffn_norm.weight", n.hidden)};
  layer.gate_up.parts = {finder.matrix(at + "feed_forward.w1.weight", n.inner, n.hidden),
                         finder.matrix(at + "feed_forward.w3.weight", n.inner, n.hidden)};
  layer.down.parts = {finder.matrix(at + "feed_forward.w2.weight", n.hidden, n.inner)};
  return layer;
}

LayerWeights llama_layer(const HfConfig& hf, const TensorFinder& finder, const std::string& at) {
  const Architecture kind = hf.config.architecture;
  const bool gemma = kind == Architecture::gemma2 || kind == Architecture::gemma3;
  const Sizes n(hf.config);
  const std::string attention = at + "self_attn.", mlp = at + "mlp.";
  LayerWeights layer;
  layer.attention_norm.parts = {finder.vector(at + "input_layernorm.weight", n.hidden)};
  if (kind == Architecture::phi3) {
    layer.qkv.parts = {
        finder.matrix(attention + "qkv_proj.weight", n.queries + 2 * n.keys, n.hidden)};
    layer.gate_up.parts = {finder.matrix(mlp + "gate_up_proj.weight", 2 * n.inner, n.hidden)};
  } else {
    layer.qkv.parts = {finder.matrix(attention + "q_proj.weight", n.queries, n.hidden),
                       finder.matrix(attention + "k_proj.weight", n.keys, n.hidden),
                       finder.matrix(attention + "v_proj.weight", n.keys, n.hidden)};
    layer.gate_up.parts = {finder.matrix(mlp + "gate_proj.weight", n.inner, n.hidden),
                           finder.matrix(mlp + "up_proj.weight", n.inner, n.hidden)};
  }
  if (hf.qkv_bias)
    layer.qkv_bias.parts = {finder.vector(attention + "q_proj.bias", n.queries),
                            finder.vector(attention + "k_proj.bias", n.keys),
                            finder.vector(attention + "v_proj.bias", n.keys)};
  if (kind == Architecture::qwen3 || kind == Architecture::gemma3) {
    layer.q_norm.parts = {finder.vector(attention + "q_norm.weight", n.head)};
    layer.k_norm.parts = {finder.vector(attention + "k_norm.weight", n.head)};
  }
  layer.output.parts = {finder.matrix(attention + "o_proj.weight", n.hidden, n.queries)};
  if (hf.output_bias)
    layer.output_bias.parts = {finder.vector(attention + "o_proj.bias", n.hidden)};
  // Gemma has a norm on either side of both halves of a layer; the others call the second half's
  // first norm "post_attention".
  Weight& after_attention = gemma ? layer.post_attention_norm : layer.mlp_norm;
  after_attention.parts = {finder.vector(at + "post_attention_layernorm.weight", n.hidden)};
  if (gemma) {
    layer.mlp_norm.parts = {finder.vector(at + "pre_feedforward_layernorm.weight", n.hidden)};
    layer.post_mlp_norm.parts = {finder.vector(at + "post_feedforward_layernorm.weight", n.hidden)};
  }
  layer.down.parts = {finder.matrix(mlp + "down_proj.weight", n.hidden, n.inner)};
  if (hf.mlp_bias) {
    layer.gate_up_bias.parts = {finder.vector(mlp + "gate_proj.bias", n.inner),
                                finder.vector(mlp + "up_proj.bias", n.inner)};
    layer.down_bias.parts = {finder.vector(mlp + "down_proj.bias", n.hidden)};
  }
  return layer;
}

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
  const bool internlm2 = config.architecture == Architecture::internlm2;
  const std::string embedding = internlm2 ? "tok_embeddings.weight" : "embed_tokens.weight";
  const Prefix prefix = find_prefix(finder, embedding);
  const std::string model = prefix.model;

  ModelWeights weights;
  weights.embedding.parts = {
      finder.matrix(model + embedding, config.vocab_size, config.hidden_size)};
  weights.final_norm.parts = {finder.vector(model + "norm.weight", config.hidden_size)};
  const std::string head =
      prefix.head + std::string(internlm2 ? "output.weight" : "lm_head.weight");
  if (!config.tied_embeddings && (hf.untied_stated || finder.has(head)))
    weights.head.parts = {finder.matrix(head, config.vocab_size, config.hidden_size)};
  else
    weights.head = weights.embedding;

  const auto order = internlm2 ? internlm2_order(config) : std::vector<std::int64_t>{};
  for (std::int64_t i = 0; i < config.n_layers; ++i) {
    const std::string at = model + "layers." + std::to_string(i) + ".";
    weights.layers.push_back(internlm2 ? internlm2_layer(hf, finder, at, order)
                                       : llama_layer(hf, finder, at));
  }
  return weights;
}

}  // namespace kvatlas::model
