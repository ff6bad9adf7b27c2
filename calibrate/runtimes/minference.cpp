// SPDX-License-Identifier: Apache-2.0
#include "calibrate/runtimes/runtimes.hpp"

namespace kvatlas::calibrate {

Runtime minference() {
  const Expression prefill = {
      Fit::approximate, {Loss::memory_not_freed}, "the prefill alone is made sparse"};
  Runtime r{"minference", "MInference", "0.1.6"};
  r.forms[Form::lazy_layers] = prefill;
  r.forms[Form::lazy_heads] = prefill;
  r.architectures = {"llama", "mistral", "phi3", "qwen2"};
  r.refuses_others = "its patch makes every layer one of Llama's";
  r.bend = [](RuntimePolicy& theirs, const Losses& losses, const ModelInfo& model) {
    theirs.not_simulated = "it makes the prefill sparse and keeps the whole cache";
    bend_window(theirs, losses, model);
  };
  return r;
}

}  // namespace kvatlas::calibrate
