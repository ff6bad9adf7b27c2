// SPDX-License-Identifier: Apache-2.0
#include "calibrate/runtimes/runtime_impl.hpp"

namespace kvatlas::calibrate {

Runtime lagkv() {
  Runtime r{"lagkv", "LagKV's repository", "2a9d19e"};
  r.forms[Form::lagkv] = {Fit::exact};
  r.bend = [](RuntimePolicy& theirs, const Losses&, const ModelInfo&) {
    require_plain(std::get<LagKv>(theirs.policy.parts.front()));
  };
  return r;
}

}  // namespace kvatlas::calibrate
