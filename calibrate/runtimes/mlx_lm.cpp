// SPDX-License-Identifier: Apache-2.0
#include "base/error.hpp"
#include "calibrate/runtimes/runtime_impl.hpp"

namespace kvatlas::calibrate {

Runtime mlx_lm() {
  Runtime r{"mlx-lm", "mlx-lm", "0.32.2"};
  r.forms[Form::lazy_layers] = {Fit::approximate, kWindowLosses, "one full layer at least"};
  r.architectures = {"llama", "mistral", "ministral3", "gemma3"};
  r.refuses_others = "its code for this architecture reads no layer types";
  r.bend = [](RuntimePolicy& theirs, const Losses& losses, const ModelInfo& model) {
    if (!leaves_full_layers(theirs.policy.parts.front()))
      fail(ErrorCode::usage, "it needs a full layer at least");
    bend_window(theirs, losses, model);
  };
  return r;
}

}  // namespace kvatlas::calibrate
