// SPDX-License-Identifier: Apache-2.0
#include "calibrate/runtimes/runtimes.hpp"

namespace kvatlas::calibrate {

Runtime transformers_cache() {
  Runtime r{"transformers-cache", "kvatlas's cache for transformers", "of this version"};
  for (const auto& name : kForms)
    if (name.form < Form::selected) r.forms[name.form] = {Fit::exact};
  r.runs_everything = true;
  using enum KvFormat;
  r.formats_taken = {{fp8, q8_0, q4_0, int4, int2}, true, true};
  r.architecture_decides = true;
  r.refuses = {{"gpt_oss", "the package's attention knows no sinks"},
               {"llama4", "the package's attention knows no chunks"}};
  return r;
}

}  // namespace kvatlas::calibrate
