// SPDX-License-Identifier: Apache-2.0
// A whole model of a few numbers, as the tensors and keys of each kind of file.
#pragma once

#include <map>
#include <string>

#include "tests/support/model_bytes.hpp"

namespace kvatlas::testing_support {

/// One layer, 4 heads, 2 KV heads. Every tensor counts up from its own thousand, so that a test
/// sees which rows it got.
struct TinySizes {
  static constexpr std::uint64_t hidden = 8, heads = 4, kv_heads = 2, head_dim = 4, inner = 12,
                                 vocabulary = 10;
  static constexpr std::uint64_t queries = heads * head_dim, keys = kv_heads * head_dim;
};

using Tensors = std::map<std::string, FloatTensor>;

/// The tensors of a Hugging Face model, under transformers' names: "llama", "phi3", "internlm2",
/// "gemma2", "gemma3_text", "qwen2", "qwen3" or "mistral".
Tensors tiny_hf_tensors(const std::string& type);
/// The text of its config.json.
std::string tiny_hf_config(const std::string& type);

/// The tensors of a GGUF file, under llama.cpp's names.
Tensors tiny_gguf_tensors(const std::string& architecture);
/// The keys of a GGUF file that every architecture has.
GgufBytes tiny_gguf_keys(const std::string& architecture);
/// A file of `keys` and these tensors.
std::string gguf_of(GgufBytes keys, const Tensors& tensors);

}  // namespace kvatlas::testing_support
