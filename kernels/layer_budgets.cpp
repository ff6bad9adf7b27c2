// SPDX-License-Identifier: Apache-2.0
#include "kernels/layer_budgets.hpp"

#include <algorithm>
#include <numeric>

#include "base/error.hpp"

namespace kvatlas::kernels {
namespace {

/// Gives the layers `total` tokens in the proportion of their counts, none more than the cap. What
/// rounding down leaves goes to the largest remainders, of equal ones to the lower layer.
std::vector<std::int64_t> share_out(std::span<const std::int64_t> counts, std::int64_t total,
                                    std::int64_t cap) {
  std::vector<std::int64_t> out(counts.size(), cap);
  std::vector<std::size_t> below(counts.size());  // the layers below the cap
  std::iota(below.begin(), below.end(), std::size_t{0});
  std::int64_t all = 0;  // their counts
  bool alike = false;    // none of them has a count: they share alike
  const auto weight = [&](std::size_t layer) { return alike ? 1 : counts[layer]; };
  for (bool settled = false; !settled;) {
    all = 0;
    for (const auto layer : below) all += counts[layer];
    alike = all == 0;
    if (alike) all = std::ssize(below);
    const auto capped = std::stable_partition(below.begin(), below.end(), [&](std::size_t layer) {
      return total * weight(layer) <= cap * all;
    });
    total -= cap * (below.end() - capped);
    settled = capped == below.end();  // else the others have more to share
    below.erase(capped, below.end());
  }
  std::int64_t left = total;
  for (const auto layer : below) left -= out[layer] = total * weight(layer) / all;
  std::stable_sort(below.begin(), below.end(), [&](std::size_t a, std::size_t b) {
    return total * weight(a) % all > total * weight(b) % all;
  });
  for (const auto layer : below)
    if (left-- > 0) ++out[layer];
  return out;
}

/// Budgets of the layers that the counts are of, whose sum before the cap is `total`.
LayerBudgets budgets_of(std::span<const std::int64_t> counts, std::int64_t total, std::int64_t base,
                        std::int64_t n_positions, double r_max) {
  if (counts.empty() || base < 0 || n_positions < 0 || !(r_max >= 1))
    fail(ErrorCode::usage, "layer budgets need layers, a budget and r_max of at least 1");
  const std::int64_t most = *std::max_element(counts.begin(), counts.end());
  const std::int64_t all = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  const auto cap = static_cast<std::int64_t>(
      std::min(static_cast<double>(n_positions), static_cast<double>(base) * r_max));
  constexpr double kMost = 9e18;  // of a product of the integers below
  if (static_cast<double>(all) * static_cast<double>(std::max(total, n_positions)) > kMost)
    fail(ErrorCode::usage, "layer budgets of ", base, " tokens for ", n_positions,
         " are too many to compute with");
  LayerBudgets out;
  for (const auto count : counts) out.raw.push_back(most > 0 ? cap * count / most : 0);
  const std::int64_t raw_sum = std::accumulate(out.raw.begin(), out.raw.end(), std::int64_t{0});
  for (const auto raw : out.raw)
    out.scaled.push_back(raw_sum > 0 ? std::min(raw * total / raw_sum, cap) : 0);
  out.exact = share_out(counts, total, cap);
  return out;
}

}  // namespace

LayerBudgets layer_budgets(std::span<const std::int64_t> counts, std::int64_t base,
                           std::int64_t n_positions, double r_max) {
  return budgets_of(counts, base * std::ssize(counts), base, n_positions, r_max);
}

LayerBudgets progressive_budgets(const CountsOfLowest& counts_of, std::int64_t n_layers,
                                 std::int64_t update, std::int64_t base, std::int64_t n_positions,
                                 double r_max) {
  if (update < 0)
    fail(ErrorCode::usage, "an update after every ", update,
         " layers: give 1 or more, or 0 for none");
  const auto after = [&](std::int64_t layers) {
    return budgets_of(counts_of(layers), base * n_layers, base, n_positions, r_max);
  };
  LayerBudgets out = after(n_layers);
  const auto lower = [](std::vector<std::int64_t>& budgets, const std::vector<std::int64_t>& to) {
    for (std::size_t layer = 0; layer < to.size(); ++layer)
      budgets[layer] = std::min(budgets[layer], to[layer]);
  };
  for (std::int64_t layers = update; update > 0 && layers < n_layers; layers += update) {
    const LayerBudgets early = after(layers);
    lower(out.raw, early.raw);
    lower(out.scaled, early.scaled);
    lower(out.exact, early.exact);
  }
  return out;
}

}  // namespace kvatlas::kernels
