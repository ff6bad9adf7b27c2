// SPDX-License-Identifier: Apache-2.0
#include "calibrate/runtimes/runtime_impl.hpp"

namespace kvatlas::calibrate {

Runtime vllm() {
  const char* const by_transformers =
      "transformers' code runs it (model-impl), its own ignores layer types";
  Runtime r{"vllm", "vLLM", "0.33.0"};
  r.forms[Form::lazy_layers] = {Fit::approximate, kWindowLosses,
                                "as overrides of the model's layer types and window"};
  r.architectures = {"llama", "mistral", "gemma2", "gemma3", "phi3", "qwen2", "qwen3"};
  r.notes = {{"qwen2", by_transformers}, {"qwen3", by_transformers}};
  r.refuses = {
      {"internlm2", "its own code reads no layer types, and transformers has none for it"}};
  r.refuses_others = "its code for this architecture is not known to read layer types";
  r.page_tokens = 16;
  r.equal_groups = true;
  return r;
}

}  // namespace kvatlas::calibrate
