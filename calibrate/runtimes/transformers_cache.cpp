// SPDX-License-Identifier: Apache-2.0
#include "calibrate/runtimes/runtimes.hpp"

namespace kvatlas::calibrate {

Runtime transformers_cache() {
  Runtime r{"transformers-cache", "kvatlas's cache for transformers", "of this version"};
  for (const auto& name : kForms)
    if (name.form < Form::selected) r.forms[name.form] = {Fit::exact};
  r.runs_everything = true;
  return r;
}

}  // namespace kvatlas::calibrate
