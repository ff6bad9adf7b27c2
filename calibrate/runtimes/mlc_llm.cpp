// SPDX-License-Identifier: Apache-2.0
#include "base/error.hpp"
#include "calibrate/runtimes/runtime_impl.hpp"

namespace kvatlas::calibrate {

Runtime mlc_llm() {
  Runtime r{"mlc-llm", "MLC-LLM", "79d603f"};
  r.forms[Form::lazy_layers] = {
      Fit::approximate, {Loss::masks_prefill, Loss::window_rolls}, "all layers or none"};
  r.architectures = {"mistral"};
  r.refuses_others = "it has windows for Mistral alone";
  r.page_tokens = 16;
  r.bend = [](RuntimePolicy& theirs, const Losses& losses, const ModelInfo& model) {
    if (leaves_full_layers(theirs.policy.parts.front()))
      fail(ErrorCode::usage, "it trims all layers or none, and the policy keeps some full");
    bend_window(theirs, losses, model);
  };
  return r;
}

}  // namespace kvatlas::calibrate
