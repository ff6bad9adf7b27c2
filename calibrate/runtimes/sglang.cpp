// SPDX-License-Identifier: Apache-2.0
#include "calibrate/runtimes/runtime_impl.hpp"

namespace kvatlas::calibrate {

Runtime sglang() {
  Runtime r{"sglang", "SGLang", "0.5.23"};
  r.forms[Form::lazy_layers] = {Fit::approximate, kWindowLosses,
                                "with model-impl: transformers, for its own code ignores it"};
  r.forms[Form::precision] = {Fit::approximate,
                              {Loss::rounds_otherwise},
                              "as the dtype of its cache, for all layers alike"};
  r.formats_taken = {{KvFormat::fp8, KvFormat::fp8_e5m2}};
  r.refuses = {{"internlm2", "transformers has no code for it"},
               {"llama4", "its windows are chunks"}};
  return r;
}

}  // namespace kvatlas::calibrate
