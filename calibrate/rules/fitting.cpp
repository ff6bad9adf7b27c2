// SPDX-License-Identifier: Apache-2.0
#include "calibrate/rules/fitting.hpp"

#include <algorithm>
#include <cstdlib>
#include <set>

#include "analyzer/profile/checked_arrays.hpp"
#include "base/plain_text.hpp"
#include "base/str.hpp"

namespace kvatlas::calibrate {
namespace {

std::string window_text(Proximity window) {
  return str("initial ", window.initial, " and recent ", window.recent);
}

std::string most_prompts(const Evidence& evidence) {
  return str("most prompts (", usual_length(evidence), " tokens or more)");
}

std::vector<std::int64_t> budgets_of(const Evidence& evidence) {
  auto budgets = profile::axis_of(evidence.header(), "budget").values;
  std::sort(budgets.begin(), budgets.end());
  return budgets;
}

/// LagKV's settings among the profile's selections.
struct ProfiledLags {
  std::set<std::int64_t> sinks, lags;
  std::set<std::string> ratios;
};
ProfiledLags profiled_lags(const Evidence& evidence) {
  ProfiledLags out;
  for (const auto& label : profile::axis_of(evidence.header(), "selection").labels) {
    if (label.rfind("lagkv:", 0) != 0) continue;
    const Policy policy = parse_policy(label);
    const LagKv& part = std::get<LagKv>(policy.parts.at(0));
    out.sinks.insert(part.sink);
    out.lags.insert(part.lag);
    out.ratios.insert(part.ratio);
  }
  return out;
}

template <class Value>
bool holds_all(const std::set<Value>& held, const std::vector<Value>& wanted) {
  return std::all_of(wanted.begin(), wanted.end(),
                     [&](const Value& value) { return held.contains(value); });
}

}  // namespace

std::int64_t usual_length(const Evidence& evidence) {
  std::vector<std::int64_t> lengths;
  for (const auto position : evidence.positions())
    lengths.push_back(evidence.sample(position).n_tokens);
  const auto quarter = lengths.begin() + std::ssize(lengths) / 4;
  std::nth_element(lengths.begin(), quarter, lengths.end());
  return *quarter;
}

Fitted<Proximity> fitting_window(const Evidence& evidence, Proximity published,
                                 std::optional<std::int64_t> initial,
                                 std::optional<std::int64_t> recent) {
  const Proximity asked{initial.value_or(published.initial), recent.value_or(published.recent)};
  if (initial && recent) return {asked};
  std::vector<Proximity> held;
  const auto& grid = profile::axis_of(evidence.header(), "proximity").values;
  for (std::size_t i = 0; i + 1 < grid.size(); i += 2)
    if ((!initial || grid[i] == *initial) && (!recent || grid[i + 1] == *recent))
      held.push_back({grid[i], grid[i + 1]});
  if (held.empty()) return {asked};  // what was given is refused where it is read
  const auto away = [&](Proximity one) { return std::abs(one.initial - asked.initial); };
  const std::int64_t nearest = away(*std::min_element(
      held.begin(), held.end(), [&](Proximity a, Proximity b) { return away(a) < away(b); }));
  std::erase_if(held, [&](Proximity one) { return away(one) != nearest; });
  std::sort(held.begin(), held.end(), [](Proximity a, Proximity b) { return a.recent < b.recent; });
  Proximity best = held.front();
  bool fits = false;
  for (const Proximity one : held)
    if (one.recent <= asked.recent && 2 * (one.initial + one.recent) <= usual_length(evidence)) {
      best = one;
      fits = true;
    }
  if (best.initial == asked.initial && best.recent == asked.recent) return {best};
  return {best, str(window_text(best), " are taken in place of ", window_text(asked), ": the ",
                    fits ? "largest of the profile's windows that leaves half of "
                         : "smallest of the profile's windows, for none leaves half of ",
                    most_prompts(evidence), " to be cut")};
}

Fitted<WindowBudget> fitting_scores(const Evidence& evidence, const WindowBudget& published) {
  const auto& kinds = profile::axis_of(evidence.header(), "window_kind");
  const bool maximum = published.pooling == Pooling::maximum;
  if (kinds.values.size() < 3 ||
      profile::row_of(kinds, {published.window, published.kernel, maximum}))
    return {published};
  WindowBudget first = published;
  first.window = kinds.values[0];
  first.kernel = kinds.values[1];
  first.pooling = kinds.values[2] != 0 ? Pooling::maximum : Pooling::average;
  return {first, str("scores of window ", first.window, ", kernel ", first.kernel, " and pooling ",
                     first.pooling == Pooling::maximum ? "max" : "avg",
                     " are taken, which the profile holds")};
}

Fitted<std::vector<std::int64_t>> fitting_budgets(const Evidence& evidence) {
  const auto held = budgets_of(evidence);
  std::int64_t longest = 0;
  for (const auto position : evidence.positions())
    longest = std::max(longest, evidence.sample(position).n_tokens);
  auto fitting = held;
  std::erase_if(fitting, [&](std::int64_t budget) { return budget >= longest; });
  if (fitting.empty() && !held.empty()) fitting = {held.front()};
  if (fitting.size() == held.size()) return {fitting};
  return {fitting,
          str("budgets ", join(fitting), " are tried: the profile's larger ones keep every ",
              "prompt whole (", longest, " tokens at most)")};
}

Fitted<std::int64_t> fitting_budget(const Evidence& evidence, std::int64_t published) {
  const auto held = budgets_of(evidence);
  if (held.empty()) return {published};
  const auto above = std::upper_bound(held.begin(), held.end(), published);
  const std::int64_t budget = above == held.begin() ? *above : *(above - 1);
  if (budget == published) return {published};
  return {budget, str("budget ", budget, " is taken in place of ", published,
                      ", which the profile does not hold")};
}

Fitted<std::int64_t> fitting_sink(const Evidence& evidence, std::int64_t published) {
  const auto held = profiled_lags(evidence).sinks;
  if (held.empty() || held.contains(published)) return {published};
  return {*held.begin(), str("sink ", *held.begin(), " is taken in place of ", published,
                             ", which the profile does not hold")};
}

Fitted<std::vector<std::string>> fitting_ratios(const Evidence& evidence,
                                                const std::vector<std::string>& published) {
  const auto held = profiled_lags(evidence).ratios;
  if (held.empty() || holds_all(held, published)) return {published};
  return {{held.begin(), held.end()},
          str("ratios ", join(held), " are taken, which the profile holds")};
}

Fitted<std::vector<std::int64_t>> fitting_lags(const Evidence& evidence, std::int64_t sink,
                                               const std::vector<std::int64_t>& published) {
  const auto held = profiled_lags(evidence).lags;
  const auto cuts = [&](std::int64_t lag) { return sink + 2 * lag <= usual_length(evidence); };
  if ((held.empty() || holds_all(held, published)) &&
      std::all_of(published.begin(), published.end(), cuts))
    return {published};
  std::vector<std::int64_t> lags(held.begin(), held.end());
  if (lags.empty()) lags = published;
  const std::int64_t least = lags.front();
  std::erase_if(lags, [&](std::int64_t lag) { return !cuts(lag); });
  if (lags.size() > published.size()) lags.erase(lags.begin(), lags.end() - std::ssize(published));
  const bool any = !lags.empty();
  if (!any) lags = {least};
  return {lags, str("lags ", join(lags), " are taken in place of ", join(published),
                    any ? ": the largest of the profile that cut "
                        : ": the smallest of the profile, for none cuts ",
                    most_prompts(evidence))};
}

}  // namespace kvatlas::calibrate
