// SPDX-License-Identifier: Apache-2.0
#include "calibrate/runtimes/runtime_impl.hpp"

namespace kvatlas::calibrate {

Runtime lagkv() {
  Runtime r{"lagkv", "LagKV's repository", "2a9d19e"};
  r.forms[Form::lagkv] = {Fit::exact};
  r.architecture_decides = true;
  for (const char* newer : {"apertus", "ernie4_5", "ernie4_5_moe", "exaone4", "glm4_moe", "gpt_oss",
                            "hunyuan_v1_dense", "minimax_m2", "ministral", "olmo3", "seed_oss"})
    r.refuses[newer] = "its cache needs transformers 4.48 to 4.53, which has no such model";
  r.refuses["llama4"] = "its cache knows no chunks";
  r.bend = [](RuntimePolicy& theirs, const Losses&, const ModelInfo&) {
    require_plain(std::get<LagKv>(theirs.policy.parts.front()));
  };
  return r;
}

}  // namespace kvatlas::calibrate
