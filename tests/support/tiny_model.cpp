// SPDX-License-Identifier: Apache-2.0
#include "tests/support/tiny_model.hpp"

#include "base/str.hpp"

namespace kvatlas::testing_support {
namespace {

using Sizes = TinySizes;

/// Adds tensors that count up from 0, 1000, 2000, … in the order of the calls.
struct Adder {
  Tensors tensors;
  void operator()(const std::string& name, const std::vector<std::uint64_t>& shape) {
    tensors[name] = counting(shape, 1000.0f * static_cast<float>(tensors.size()));
  }
};

bool is_gemma(const std::string& type) { return type.starts_with("gemma"); }
bool has_head_norms(const std::string& type) {
  return type == "qwen3" || type.starts_with("gemma3");
}

Tensors internlm2_tensors() {
  Adder add;
  add("model.tok_embeddings.weight", {Sizes::vocabulary, Sizes::hidden});
  add("model.norm.weight", {Sizes::hidden});
  add("output.weight", {Sizes::vocabulary, Sizes::hidden});
  const std::string at = "model.layers.0.";
  add(at + "attention_norm.weight", {Sizes::hidden});
  add(at + "attention.wqkv.weight", {Sizes::queries + 2 * Sizes::keys, Sizes::hidden});
  add(at + "attention.wo.weight", {Sizes::hidden, Sizes::queries});
  add(at + "ffn_norm.weight", {Sizes::hidden});
  add(at + "feed_forward.w1.weight", {Sizes::inner, Sizes::hidden});
  add(at + "feed_forward.w3.weight", {Sizes::inner, Sizes::hidden});
  add(at + "feed_forward.w2.weight", {Sizes::hidden, Sizes::inner});
  return add.tensors;
}

}  // namespace

Tensors tiny_hf_tensors(const std::string& type) {
  if (type == "internlm2") return internlm2_tensors();
  Adder add;
  add("model.embed_tokens.weight", {Sizes::vocabulary, Sizes::hidden});
  add("model.norm.weight", {Sizes::hidden});
  if (!is_gemma(type)) add("lm_head.weight", {Sizes::vocabulary, Sizes::hidden});
  const std::string at = "model.layers.0.", attention = at + "self_attn.", mlp = at + "mlp.";
  add(at + "input_layernorm.weight", {Sizes::hidden});
  if (type == "phi3") {
    add(attention + "qkv_proj.weight", {Sizes::queries + 2 * Sizes::keys, Sizes::hidden});
    add(mlp + "gate_up_proj.weight", {2 * Sizes::inner, Sizes::hidden});
  } else {
    add(attention + "q_proj.weight", {Sizes::queries, Sizes::hidden});
    add(attention + "k_proj.weight", {Sizes::keys, Sizes::hidden});
    add(attention + "v_proj.weight", {Sizes::keys, Sizes::hidden});
    add(mlp + "gate_proj.weight", {Sizes::inner, Sizes::hidden});
    add(mlp + "up_proj.weight", {Sizes::inner, Sizes::hidden});
  }
  if (type == "qwen2") {
    add(attention + "q_proj.bias", {Sizes::queries});
    add(attention + "k_proj.bias", {Sizes::keys});
    add(attention + "v_proj.bias", {Sizes::keys});
  }
  if (has_head_norms(type)) {
    add(attention + "q_norm.weight", {Sizes::head_dim});
    add(attention + "k_norm.weight", {Sizes::head_dim});
  }
  add(attention + "o_proj.weight", {Sizes::hidden, Sizes::queries});
  add(at + "post_attention_layernorm.weight", {Sizes::hidden});
  if (is_gemma(type)) {
    add(at + "pre_feedforward_layernorm.weight", {Sizes::hidden});
    add(at + "post_feedforward_layernorm.weight", {Sizes::hidden});
  }
  add(mlp + "down_proj.weight", {Sizes::hidden, Sizes::inner});
  return add.tensors;
}

std::string tiny_hf_config(const std::string& type) {
  return str(R"({"model_type":")", type, R"(","hidden_size":)", Sizes::hidden,
             R"(,"num_attention_heads":)", Sizes::heads, R"(,"num_key_value_heads":)",
             Sizes::kv_heads, R"(,"head_dim":)", Sizes::head_dim, R"(,"intermediate_size":)",
             Sizes::inner, R"(,"vocab_size":)", Sizes::vocabulary,
             R"(,"num_hidden_layers":1,"max_position_embeddings":64})");
}

Tensors tiny_gguf_tensors(const std::string& architecture) {
  Adder add;
  add("token_embd.weight", {Sizes::vocabulary, Sizes::hidden});
  add("output_norm.weight", {Sizes::hidden});
  const std::string at = "blk.0.";
  add(at + "attn_norm.weight", {Sizes::hidden});
  if (architecture == "phi3") {
    add(at + "attn_qkv.weight", {Sizes::queries + 2 * Sizes::keys, Sizes::hidden});
    add(at + "ffn_up.weight", {2 * Sizes::inner, Sizes::hidden});
  } else {
    add(at + "attn_q.weight", {Sizes::queries, Sizes::hidden});
    add(at + "attn_k.weight", {Sizes::keys, Sizes::hidden});
    add(at + "attn_v.weight", {Sizes::keys, Sizes::hidden});
    add(at + "ffn_gate.weight", {Sizes::inner, Sizes::hidden});
    add(at + "ffn_up.weight", {Sizes::inner, Sizes::hidden});
  }
  if (architecture == "qwen2") {
    add(at + "attn_q.bias", {Sizes::queries});
    add(at + "attn_k.bias", {Sizes::keys});
    add(at + "attn_v.bias", {Sizes::keys});
  }
  if (has_head_norms(architecture)) {
    add(at + "attn_q_norm.weight", {Sizes::head_dim});
    add(at + "attn_k_norm.weight", {Sizes::head_dim});
  }
  add(at + "attn_output.weight", {Sizes::hidden, Sizes::queries});
  add(at + "ffn_norm.weight", {Sizes::hidden});
  if (is_gemma(architecture)) {
    add(at + "post_attention_norm.weight", {Sizes::hidden});
    add(at + "post_ffw_norm.weight", {Sizes::hidden});
  }
  add(at + "ffn_down.weight", {Sizes::hidden, Sizes::inner});
  return add.tensors;
}

GgufBytes tiny_gguf_keys(const std::string& architecture) {
  const auto number = [](std::uint64_t value) { return static_cast<std::uint32_t>(value); };
  const std::string at = architecture + ".";
  GgufBytes file;
  file.text("general.architecture", architecture).number(at + "block_count", 1u);
  file.number(at + "context_length", 64u);
  file.number(at + "embedding_length", number(Sizes::hidden));
  file.number(at + "feed_forward_length", number(Sizes::inner));
  file.number(at + "attention.head_count", number(Sizes::heads));
  file.number(at + "attention.head_count_kv", number(Sizes::kv_heads));
  file.number(at + "attention.key_length", number(Sizes::head_dim));
  file.number(at + "attention.value_length", number(Sizes::head_dim));
  file.number(at + "attention.layer_norm_rms_epsilon", 1e-6f);
  return file;
}

std::string gguf_of(GgufBytes keys, const Tensors& tensors) {
  for (const auto& [name, tensor] : tensors) keys.floats(name, tensor.shape, tensor.values);
  return keys.build();
}

}  // namespace kvatlas::testing_support
