// SPDX-License-Identifier: Apache-2.0
// The options of window scores, which DynamicKV and HeadKV share.
#pragma once

#include <string>
#include <vector>

#include "calibrate/policy/policy.hpp"
#include "calibrate/rules/fitting.hpp"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace kvatlas::calibrate {

/// --window, --kernel and --pooling.
class ScoreOptions {
 public:
  void add_options(CLI::App& command, const char* part, WindowBudget& select);
  void settle(WindowBudget& select) const;
  /// Takes scores that the profile holds if none of the options was given. Returns what it took.
  std::vector<std::string> suit(const Evidence& evidence, WindowBudget& select) const;

 private:
  std::vector<const CLI::Option*> options_;
  std::string pooling_;
};

}  // namespace kvatlas::calibrate
