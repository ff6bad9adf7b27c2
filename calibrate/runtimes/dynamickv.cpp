// SPDX-License-Identifier: Apache-2.0
#include "calibrate/runtimes/runtime_impl.hpp"

namespace kvatlas::calibrate {

Runtime dynamickv() {
  Runtime r{"dynamickv", "DynamicKV's repository", "8ab3c08"};
  r.forms[Form::dynamickv] = {
      Fit::approximate, {}, "it takes the settings, and finds the budgets anew for each prompt"};
  r.architectures = {"llama", "mistral", "qwen2", "internlm2"};
  r.refuses_others =
      "its code patches Llama, Mistral, Qwen 2 and InternLM 2 alone, and changes "
      "nothing of others";
  r.architecture_decides = true;
  r.bend = [](RuntimePolicy& theirs, const Losses&, const ModelInfo&) {
    auto& part = std::get<DynamicKv>(theirs.policy.parts.front());
    if (part.fixed)
      theirs.changes.emplace_back(
          "it finds the budgets anew for each prompt: those given are not used");
    part.fixed.reset();
    set(theirs, part.update, 0, "its options name no interval of updates");
  };
  return r;
}

}  // namespace kvatlas::calibrate
