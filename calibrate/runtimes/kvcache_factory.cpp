// SPDX-License-Identifier: Apache-2.0
#include "calibrate/runtimes/runtime_impl.hpp"

namespace kvatlas::calibrate {

Runtime kvcache_factory() {
  Runtime r{"kvcache-factory", "KVCache-Factory", "c97f9d7"};
  r.forms[Form::lazy_heads] = {Fit::approximate,
                               {Loss::keeps_other_tokens},
                               "as budgets: the proximal tokens of a lazy head, else the prompt"};
  r.forms[Form::dynamickv] = {
      Fit::exact, {}, "as a HeadKV file: max pooling over 7, a window of 8 rows"};
  r.forms[Form::headkv] = r.forms[Form::dynamickv];
  r.architectures = {"llama", "mistral"};
  r.refuses_others = "its code patches Llama and Mistral alone, and changes nothing of others";
  r.architecture_decides = true;
  r.keeps_windows_whole = true;  // the cache of transformers 4.44 knows no windows
  r.bend = [](RuntimePolicy& theirs, const Losses&, const ModelInfo&) {
    Part& part = theirs.policy.parts.front();
    WindowBudget* const by_window = window_budget(part);
    if (!by_window) {
      theirs.not_simulated = "each head selects as many tokens as it has, by its own scores";
      return;
    }
    require_budgets(part);
    WindowBudget& select = *by_window;
    const std::int64_t rows = 8;
    select.budget += rows - select.window;
    set(theirs, select.window, rows, "its window has 8 rows, kept on top of the budgets");
    set(theirs, select.kernel, 7, "it pools scores over 7 positions");
    set(theirs, select.pooling, Pooling::maximum, "it pools scores by their greatest");
  };
  return r;
}

}  // namespace kvatlas::calibrate
