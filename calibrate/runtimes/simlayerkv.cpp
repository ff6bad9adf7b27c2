// SPDX-License-Identifier: Apache-2.0
#include "base/error.hpp"
#include "calibrate/runtimes/runtime_impl.hpp"

namespace kvatlas::calibrate {

Runtime simlayerkv() {
  Runtime r{"simlayerkv", "SimLayerKV's repository", "1fb6bda"};
  r.forms[Form::lazy_layers] = {
      Fit::approximate, {}, "it takes the threshold alone, and decides for each input"};
  r.forms[Form::lazy_by_input] = {
      Fit::exact, {}, "the threshold; 4 initial and 1024 recent tokens are fixed there"};
  r.architectures = {"llama", "mistral", "qwen2"};
  r.refuses_others = "its code patches Llama (Mistral with it) and Qwen 2 alone";
  // The repository's program takes a threshold; its other numbers stand in its code.
  r.bend = [](RuntimePolicy& theirs, const Losses&, const ModelInfo&) {
    auto* part = std::get_if<SimLayerKv>(&theirs.policy.parts.front());
    if (!part) fail(ErrorCode::usage, "it takes the threshold alone");
    if (part->fixed)
      theirs.changes.emplace_back(
          "it decides by the threshold for each input: the fixed layers are not used");
    part->fixed.reset();
    if (part->per_head) fail(ErrorCode::usage, "it decides for layers, not for heads");
    set(theirs, part->identify, SimLayerKv::Identify::decode,
        "it decides at the first generated token");
    set(theirs, part->keep.initial, 4, "it keeps 4 initial tokens");
    set(theirs, part->keep.recent, 1024, "it keeps 1024 recent tokens");
    set(theirs, theirs.policy.rolling, false, "what is generated is kept");
  };
  return r;
}

}  // namespace kvatlas::calibrate
