// SPDX-License-Identifier: Apache-2.0
#include "calibrate/methods/score_options.hpp"

#include <algorithm>

#include "base/options.hpp"
#include "calibrate/policy/setting_option.hpp"

namespace kvatlas::calibrate {

void ScoreOptions::add_options(CLI::App& command, const char* part, WindowBudget& select) {
  options_ = {as_setting(add_option(command, "--window", select.window, "TOKENS",
                                    "last prompt rows, which score the others"),
                         part, "window"),
              as_setting(add_option(command, "--kernel", select.kernel, "N"), part, "kernel"),
              as_setting(add_option(command, "--pooling", pooling_, "HOW",
                                    "how scores are pooled: avg or max"),
                         part, "pooling")};
}

void ScoreOptions::settle(WindowBudget& select) const {
  select.pooling = pooling_ == "max" ? Pooling::maximum : Pooling::average;
}

std::vector<std::string> ScoreOptions::suit(const Evidence& evidence, WindowBudget& select) const {
  std::vector<std::string> said;
  if (std::all_of(options_.begin(), options_.end(),
                  [](const CLI::Option* option) { return option->count() == 0; }))
    take(fitting_scores(evidence, select), select, said);
  return said;
}

}  // namespace kvatlas::calibrate
