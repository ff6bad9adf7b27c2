// SPDX-License-Identifier: Apache-2.0
// Settings that nobody gave: the published ones where the profile holds them and its prompts are
// long enough for them, else what the profile holds and its prompts allow.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "calibrate/policy/policy.hpp"
#include "calibrate/rules/evidence.hpp"

namespace kvatlas::calibrate {

/// Three samples of four have so many tokens or more.
std::int64_t usual_length(const Evidence& evidence);

/// Settings, and in a sentence why they are not the published ones; empty if they are.
template <class Settings>
struct Fitted {
  Settings settings;
  std::string why = {};
};

/// Takes what was fitted, and adds why it is not the published setting.
template <class Settings>
void take(Fitted<Settings> fitted, Settings& settings, std::vector<std::string>& said) {
  settings = std::move(fitted.settings);
  if (!fitted.why.empty()) said.push_back(std::move(fitted.why));
}

/// The window of a method. What was given stays. The rest is the profile's: the greatest number of
/// recent tokens, up to the published one, whose window leaves half of the usual length to be cut;
/// the least where none does.
Fitted<Proximity> fitting_window(const Evidence& evidence, Proximity published,
                                 std::optional<std::int64_t> initial,
                                 std::optional<std::int64_t> recent);

/// The published kind of window scores, or the profile's first if it lacks that.
Fitted<WindowBudget> fitting_scores(const Evidence& evidence, const WindowBudget& published);

/// The profile's budgets that leave something out of the longest prompt; the least where none does.
Fitted<std::vector<std::int64_t>> fitting_budgets(const Evidence& evidence);

/// One of the profile's budgets: the greatest up to the published one, or the least.
Fitted<std::int64_t> fitting_budget(const Evidence& evidence, std::int64_t published);

/// LagKV's first tokens and ratios as they were profiled.
Fitted<std::int64_t> fitting_sink(const Evidence& evidence, std::int64_t published);
Fitted<std::vector<std::string>> fitting_ratios(const Evidence& evidence,
                                                const std::vector<std::string>& published);
/// The published lags if the profile holds them all and they cut prompts of the usual length; else
/// as many of the profile's, the greatest that do; the least where none does.
Fitted<std::vector<std::int64_t>> fitting_lags(const Evidence& evidence, std::int64_t sink,
                                               const std::vector<std::int64_t>& published);

}  // namespace kvatlas::calibrate
