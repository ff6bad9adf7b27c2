// SPDX-License-Identifier: Apache-2.0
#include "base/error.hpp"
#include "calibrate/runtimes/runtime_impl.hpp"

namespace kvatlas::calibrate {

Runtime transformers() {
  Runtime r{"transformers", "Hugging Face transformers", "5.2.0 to 5.23.0"};
  r.forms[Form::lazy_layers] = {Fit::approximate, kWindowLosses,
                                "as layer types and one window in config.json"};
  r.forms[Form::dynamickv] = {
      Fit::approximate,
      {Loss::first_tokens_lost, Loss::window_rolls, Loss::keeps_other_tokens},
      "as a window for each layer; llama alone, from 5.23 on"};
  r.forms[Form::precision] = {
      Fit::approximate, {Loss::rounds_otherwise}, "as its quantised cache, for all layers alike"};
  r.formats_taken = {
      {KvFormat::int4, KvFormat::int2},
      false,
      false,
      0,
      "it rounds groups of 64 numbers, the prompt at once and later tokens when 128 are there"};
  r.architectures = {"llama", "qwen2", "qwen3", "gemma2", "gemma3", "ministral"};
  r.notes = {{"llama",
              "the mask is not applied: the cache of a lazy layer is cut after a full prefill, for "
              "one prompt without padding, with sdpa"}};
  r.refuses = {
      {"mistral",
       "windows of single layers end in a shape error there; its checkpoints load under "
       "model_type ministral, which works: give its config.json, so changed, with --config"},
      {"phi3", "windows of single layers end in a shape error there"}};
  r.refuses_others = "its code for this architecture is not known to read layer types";
  r.bend = [](RuntimePolicy& theirs, const Losses& losses, const ModelInfo& model) {
    const bool llama = model.architecture == "llama";
    if (const Part& part = theirs.policy.parts.front(); std::holds_alternative<DynamicKv>(part)) {
      if (!llama)
        fail(ErrorCode::usage,
             "windows of different sizes end in an error on architectures other than llama");
      require_budgets(part);
      theirs.not_simulated = "every layer has a window of its own size";
      return;
    }
    Losses here = losses;
    // In Llama the windows cut the cache, and the mask does not know of them.
    if (llama) here.erase(Loss::masks_prefill);
    bend_window(theirs, here, model);
  };
  return r;
}

}  // namespace kvatlas::calibrate
