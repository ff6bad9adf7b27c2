// SPDX-License-Identifier: Apache-2.0
// What is known of each runtime, as of November 2026. Forms are in the order of enum Form.
#include "calibrate/runtimes/runtimes.hpp"

namespace kvatlas::calibrate {
namespace {

constexpr Fit kAbout = Fit::approximate, kExact = Fit::exact;

Runtime tensorrt_llm() {
  Runtime r{"tensorrt-llm", "TensorRT-LLM", "main of autumn 2026, schema 1.4.0rc0"};
  r.forms[0] = {kAbout, "abcd", "as a list of windows and layer types"};
  r.forms[4] = {kAbout, "g", "the mean budget for all layers, as RocketKV's; needs an SM100 GPU"};
  r.masks_prefill = r.rolls = true;
  r.architectures = {
      {"gemma3", false, ""},
      {"mistral", false, "needs a version with windows for Mistral (spring 2026)"},
      {"ministral", false, ""},
      {"llama", true,
       "its Llama code passes no window, so a list of windows changes nothing; the "
       "checkpoint can be served as Ministral, which does: give its config.json, with model_type "
       "ministral, with --config"},
      {"qwen2", true, "its Qwen 2 code passes no window, so a list of windows changes nothing"},
      {"qwen3", true, "its Qwen 3 code passes no window, so a list of windows changes nothing"}};
  r.refuses_others = "its code for this architecture is not known to pass a window";
  r.page_tokens = 32;
  return r;
}

Runtime transformers() {
  Runtime r{"transformers", "Hugging Face transformers", "5.2.0 to 5.23.0"};
  r.forms[0] = {kAbout, "abcd", "as layer types and one window in config.json"};
  r.forms[4] = {kAbout, "acg", "as a window for each layer; llama alone, from 5.23 on"};
  r.masks_prefill = r.rolls = true;
  r.architectures = {
      {"llama", false,
       "the mask is not applied: the cache of a lazy layer is cut after a full "
       "prefill, for one prompt without padding, with sdpa"},
      {"qwen2", false, ""},
      {"qwen3", false, ""},
      {"gemma2", false, ""},
      {"gemma3", false, ""},
      {"ministral", false, ""},
      {"mistral", true,
       "windows of single layers end in a shape error there; its checkpoints load "
       "under model_type ministral, which works: give its config.json, so changed, with --config"},
      {"phi3", true, "windows of single layers end in a shape error there"}};
  r.refuses_others = "its code for this architecture is not known to read layer types";
  return r;
}

Runtime kvpress() {
  Runtime r{"kvpress", "NVIDIA kvpress", "0.5.5"};
  r.forms[0] = {kExact, "e", "as a ratio for each layer"};
  r.forms[1] = {kAbout, "", "SimLayerKVPress decides on the last prompt row, own key not counted"};
  r.forms[2] = {kExact, "f", "as a DuoAttention pattern"};
  r.forms[4] = {kExact, "e", "SnapKV's scores, with average pooling alone"};
  r.forms[5] = {kExact, "e", "for the prompt; nothing is cut while decoding"};
  r.keeps_initial = true;
  return r;
}

Runtime duo_attention() {
  Runtime r{"duo-attention", "DuoAttention", "2025-02"};
  r.forms[0] = {kExact, "c", "as rows of zeros of a head pattern"};
  r.forms[2] = {kExact, "c", "as a head pattern"};
  r.keeps_initial = r.rolls = true;
  r.architectures = {{"llama", false, ""}, {"mistral", false, ""}};
  r.refuses_others = "it knows Llama and Mistral alone";
  return r;
}

Runtime vllm() {
  Runtime r{"vllm", "vLLM", "0.33.0"};
  r.forms[0] = {kAbout, "abcd", "as overrides of the model's layer types and window"};
  r.masks_prefill = r.rolls = true;
  r.architectures = {
      {"llama", false, ""},
      {"mistral", false, ""},
      {"gemma2", false, ""},
      {"gemma3", false, ""},
      {"phi3", false, ""},
      {"qwen2", false, "transformers' code runs it (model-impl), its own ignores layer types"},
      {"qwen3", false, "transformers' code runs it (model-impl), its own ignores layer types"},
      {"internlm2", true, "its own code reads no layer types, and transformers has none for it"}};
  r.refuses_others = "its code for this architecture is not known to read layer types";
  r.page_tokens = 16;
  r.equal_groups = true;
  return r;
}

Runtime sglang() {
  Runtime r{"sglang", "SGLang", "0.5.23"};
  r.forms[0] = {kAbout, "abcd", "with model-impl: transformers, for its own code ignores it"};
  r.masks_prefill = r.rolls = true;
  r.architectures = {{"internlm2", true, "transformers has no code for it"}};
  return r;
}

Runtime llama_cpp() {
  Runtime r{"llama.cpp", "llama.cpp", "2026-10-01"};
  r.forms[0] = {kAbout, "abcd", "as metadata of the GGUF file: a window and a period of layers"};
  r.masks_prefill = r.rolls = true;
  r.architectures = {{"gemma2", false, ""},
                     {"gemma3", false, ""},
                     {"phi3", true, "its Phi 3 code reads the window and switches it off"}};
  r.refuses_others = "its code for this architecture reads no window";
  return r;
}

Runtime simlayerkv() {
  Runtime r{"simlayerkv", "SimLayerKV's repository", "1fb6bda"};
  r.forms[0] = {kAbout, "", "it takes the threshold alone, and decides for each input"};
  r.forms[1] = {kExact, "", "the threshold; 4 initial and 1024 recent tokens are fixed there"};
  r.keeps_initial = true;
  r.architectures = {{"llama", false, ""}, {"mistral", false, ""}, {"qwen2", false, ""}};
  r.refuses_others = "its code patches Llama (Mistral with it) and Qwen 2 alone";
  return r;
}

Runtime dynamickv() {
  Runtime r{"dynamickv", "DynamicKV's repository", "8ab3c08"};
  r.forms[4] = {kAbout, "", "it takes the settings, and finds the budgets anew for each prompt"};
  r.architectures = {
      {"llama", false, ""}, {"mistral", false, ""}, {"qwen2", false, ""}, {"internlm2", false, ""}};
  r.refuses_others =
      "its code patches Llama, Mistral, Qwen 2 and InternLM 2 alone, and changes nothing of others";
  return r;
}

Runtime lagkv() {
  Runtime r{"lagkv", "LagKV's repository", "2a9d19e"};
  r.forms[5] = {kExact, "", ""};
  r.keeps_initial = true;
  return r;
}

Runtime kvcache_factory() {
  Runtime r{"kvcache-factory", "KVCache-Factory", "c97f9d7"};
  r.forms[2] = {kAbout, "g", "as budgets: the proximal tokens of a lazy head, else the prompt"};
  r.forms[4] = {kExact, "", "as a HeadKV file: max pooling over 7, a window of 8 rows"};
  r.architectures = {{"llama", false, ""}, {"mistral", false, ""}};
  r.refuses_others = "its code patches Llama and Mistral alone, and changes nothing of others";
  return r;
}

Runtime minference() {
  Runtime r{"minference", "MInference", "0.1.6"};
  r.forms[0] = {kAbout, "f", "the prefill alone is made sparse"};
  r.forms[2] = {kAbout, "f", "the prefill alone is made sparse"};
  r.keeps_initial = true;
  return r;
}

Runtime openvino() {
  Runtime r{"openvino", "OpenVINO GenAI", "2026.4.1"};
  r.forms[0] = {kAbout, "g", "one setting for all layers"};
  r.forms[4] = {kAbout, "g", "one budget for all layers"};
  r.keeps_initial = r.all_layers_alike = true;
  r.block_tokens = 32;
  r.page_tokens = 32;
  return r;
}

Runtime mlc_llm() {
  Runtime r{"mlc-llm", "MLC-LLM", "79d603f"};
  r.forms[0] = {kAbout, "bc", "all layers or none"};
  r.keeps_initial = r.masks_prefill = r.rolls = r.all_layers_alike = true;
  r.architectures = {{"mistral", false, ""}};
  r.refuses_others = "it has windows for Mistral alone";
  r.page_tokens = 16;
  return r;
}

Runtime mlx_lm() {
  Runtime r{"mlx-lm", "mlx-lm", "0.32.2"};
  r.forms[0] = {kAbout, "abcd", "one full layer at least"};
  r.masks_prefill = r.rolls = true;
  r.architectures = {{"llama", false, ""},
                     {"mistral", false, ""},
                     {"ministral3", false, ""},
                     {"gemma3", false, ""}};
  r.refuses_others = "its code for this architecture reads no layer types";
  return r;
}

Runtime transformers_cache() {
  Runtime r{"transformers-cache", "kvatlas's cache for transformers", "of this version"};
  r.forms.fill({kExact, "", ""});
  r.keeps_initial = true;
  return r;
}

}  // namespace

const std::vector<Runtime>& runtimes() {
  static const std::vector<Runtime> all = {kvpress(),           duo_attention(), vllm(),
                                           tensorrt_llm(),      transformers(),  sglang(),
                                           llama_cpp(),         mlx_lm(),        mlc_llm(),
                                           openvino(),          minference(),    simlayerkv(),
                                           dynamickv(),         lagkv(),         kvcache_factory(),
                                           transformers_cache()};
  return all;
}

}  // namespace kvatlas::calibrate
