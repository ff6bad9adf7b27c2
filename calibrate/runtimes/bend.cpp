// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <numeric>

#include "base/error.hpp"
#include "calibrate/runtimes/runtime_impl.hpp"

namespace kvatlas::calibrate {

void bend_window(RuntimePolicy& theirs, const Losses& losses, const ModelInfo&) {
  Proximity& keep = *kept_window(theirs.policy.parts.front());
  if (losses.contains(Loss::first_tokens_lost) && keep.initial > 0) {
    theirs.changes.push_back(str("the first ", keep.initial, " tokens are not kept"));
    keep.initial = 0;
  }
  if (losses.contains(Loss::masks_prefill))
    set(theirs, theirs.policy.masks_prefill, true, "the window masks the prefill too");
  if (losses.contains(Loss::window_rolls))
    set(theirs, theirs.policy.rolling, true, "the window keeps its size while decoding");
  else
    set(theirs, theirs.policy.rolling, false, "what is generated is kept");
}

void require_budgets(const Part& part) {
  const auto* of_heads = std::get_if<HeadKv>(&part);
  if (of_heads ? !of_heads->fixed : !std::get<DynamicKv>(part).fixed)
    fail(ErrorCode::usage,
         "it takes budgets found beforehand, and the policy finds them by prompt");
}

void require_plain(const LagKv& part) {
  if (part.variant != LagVariant::lag) fail(ErrorCode::usage, "it knows none of LagKV's variants");
}

bool leaves_full_layers(const Part& part) {
  const auto* lazy = std::get_if<SimLayerKv>(&part);
  return lazy && std::any_of(lazy->fixed->begin(), lazy->fixed->end(), [](const auto& row) {
           return std::count(row.begin(), row.end(), 0) > 0;
         });
}

std::int64_t mean_budget(const DynamicKv& part) {
  if (!part.fixed || part.fixed->empty()) return part.select.budget;
  return std::accumulate(part.fixed->begin(), part.fixed->end(), std::int64_t{0}) /
             std::ssize(*part.fixed) +
         part.select.window;
}

std::int64_t tokens_selected(const Part& part, std::int64_t prompt) {
  const std::int64_t budget = std::visit(
      [&](const auto& one) -> std::int64_t {
        if constexpr (requires { one.kept(prompt); })
          return one.kept(prompt);
        else if constexpr (requires { one.select; })
          return one.select.budget;
        else if constexpr (requires { one.budget; })
          return one.budget;
        else
          fail(ErrorCode::internal, "a part without a budget was asked for it");
      },
      part);
  return std::min(budget, prompt);
}

std::int64_t whole_pages(std::int64_t tokens, std::int64_t page_tokens) {
  return std::max((tokens + page_tokens - 1) / page_tokens, std::int64_t{1}) * page_tokens;
}

}  // namespace kvatlas::calibrate
