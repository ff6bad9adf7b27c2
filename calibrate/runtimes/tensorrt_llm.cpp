// SPDX-License-Identifier: Apache-2.0
#include "base/error.hpp"
#include "calibrate/runtimes/runtime_impl.hpp"

namespace kvatlas::calibrate {

Runtime tensorrt_llm() {
  Runtime r{"tensorrt-llm", "TensorRT-LLM", "main of autumn 2026, schema 1.4.0rc0"};
  r.forms[Form::lazy_layers] = {Fit::approximate, kWindowLosses,
                                "as a list of windows and layer types"};
  r.forms[Form::dynamickv] = {Fit::approximate,
                              {Loss::keeps_other_tokens},
                              "the mean budget for all layers, as RocketKV's; needs an SM100 GPU"};
  r.forms[Form::precision] = {Fit::approximate,
                              {Loss::rounds_otherwise},
                              "as the dtype of its cache, for all layers alike"};
  r.formats_taken = {{KvFormat::fp8, KvFormat::nvfp4}};
  r.forms[Form::decoding] = {Fit::approximate,
                             {Loss::keeps_other_tokens},
                             "TriAttention alone, by statistics from a file; it keeps the prompt "
                             "beside the budget; needs an SM100 GPU"};
  r.architectures = {"gemma3", "mistral", "ministral"};
  r.notes = {{"mistral", "needs a version with windows for Mistral (spring 2026)"}};
  r.refuses = {{"llama",
                "its Llama code passes no window, so a list of windows changes nothing; the "
                "checkpoint can be served as Ministral, which does: give its config.json, with "
                "model_type ministral, with --config"},
               {"qwen2", "its Qwen 2 code passes no window, so a list of windows changes nothing"},
               {"qwen3", "its Qwen 3 code passes no window, so a list of windows changes nothing"}};
  r.refuses_others = "its code for this architecture is not known to pass a window";
  r.page_tokens = 32;
  r.bend = [](RuntimePolicy& theirs, const Losses& losses, const ModelInfo& model) {
    if (const auto* decoding = std::get_if<Decoding>(&theirs.policy.parts.front())) {
      if (decoding->by != Decoding::By::triattention)
        fail(ErrorCode::usage, "while decoding it chooses by TriAttention alone: by=triattention");
      if (!model.windows.empty())
        fail(ErrorCode::usage, "its TriAttention takes no model with windows");
      theirs.not_simulated =
          "it scores by statistics from a file, and keeps the whole prompt beside the budget";
      return;
    }
    if (std::holds_alternative<DynamicKv>(theirs.policy.parts.front()))
      theirs.not_simulated = "RocketKV selects pages of tokens by its own scores";
    else
      bend_window(theirs, losses, model);
  };
  return r;
}

}  // namespace kvatlas::calibrate
