// SPDX-License-Identifier: Apache-2.0
// DynamicKV's Algorithm 1 told from its paper alone, plainly: buffers of positions that are sorted
// once and cut again and again. Numbers of lines are the paper's.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <numeric>
#include <utility>
#include <vector>

namespace kvatlas::testing_support {

struct DynamicKvInput {
  std::vector<std::vector<float>> scores;  // [layer][head * positions + position]
  std::int64_t heads, positions;           // H, and the tokens before the window
  std::int64_t base;                       // wt - ws
  double r_max;
  std::int64_t update;  // m

  std::int64_t layers() const { return static_cast<std::int64_t>(scores.size()); }
  /// Line 3; no more tokens can be kept than there are.
  std::int64_t bs() const {
    return std::min(static_cast<std::int64_t>(static_cast<double>(base) * r_max), positions);
  }
};

/// Lines 5 and 6: how many of the base * H * l highest scores of the first l layers lie in each. Of
/// equal scores those of the lower layer, then head, then position count.
inline std::vector<std::int64_t> paper_counts(const DynamicKvInput& in, std::int64_t l) {
  std::vector<std::pair<float, std::int64_t>> all;
  for (std::int64_t layer = 0; layer < l; ++layer)
    for (const float score : in.scores[static_cast<std::size_t>(layer)])
      all.emplace_back(score, layer);
  std::stable_sort(all.begin(), all.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<std::int64_t> counts(static_cast<std::size_t>(l), 0);
  const std::int64_t k = in.base * in.heads * l;
  for (std::int64_t i = 0; i < std::min<std::int64_t>(k, std::ssize(all)); ++i)
    ++counts[static_cast<std::size_t>(all[static_cast<std::size_t>(i)].second)];
  return counts;
}

/// Lines 7 to 11, in whole numbers.
inline std::vector<std::int64_t> paper_budgets(const DynamicKvInput& in,
                                               std::vector<std::int64_t> counts) {
  std::vector<std::int64_t>& bl = counts;
  const std::int64_t highest = *std::max_element(bl.begin(), bl.end());
  std::int64_t sum = 0;
  for (auto& t : bl) sum += t = in.bs() * t / highest;                   // line 8
  for (auto& k : bl) k = sum > 0 ? k * in.base * in.layers() / sum : 0;  // lines 9 and 10
  return bl;
}

/// kvatlas's `exact` budgets of an update (docs/dynamickv.md), in place of lines 7 to 11: the
/// layers with the largest counts are at the cap, and the fewest of them that leave the others, in
/// proportion to their counts, within it.
inline std::vector<std::int64_t> plain_exact(const DynamicKvInput& in,
                                             const std::vector<std::int64_t>& counts) {
  const std::int64_t cap = in.bs();
  std::vector<std::size_t> order(counts.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](auto a, auto b) { return counts[a] > counts[b]; });
  std::vector<std::int64_t> exact(counts.size(), cap);
  for (std::size_t at_cap = 0; at_cap < order.size(); ++at_cap) {
    const double left = static_cast<double>(in.base * in.layers()) -
                        static_cast<double>(cap) * static_cast<double>(at_cap);
    double weights = 0;
    for (std::size_t i = at_cap; i < order.size(); ++i)
      weights += static_cast<double>(counts[order[i]]);
    const auto share = [&](std::size_t layer) {
      return weights > 0 ? left * static_cast<double>(counts[layer]) / weights
                         : left / static_cast<double>(order.size() - at_cap);
    };
    if (share(order[at_cap]) > static_cast<double>(cap) + 1e-9) continue;
    std::vector<std::pair<double, std::size_t>> remainders;
    double given = 0;
    for (std::size_t i = at_cap; i < order.size(); ++i) {
      const double whole = std::floor(share(order[i]) + 1e-9);
      exact[order[i]] = static_cast<std::int64_t>(whole);
      given += whole;
      // Nine digits tell any two remainders of these small numbers apart, and no equal ones.
      remainders.emplace_back(-std::round((share(order[i]) - whole) * 1e9), order[i]);
    }
    std::sort(remainders.begin(), remainders.end());
    for (std::size_t i = 0; static_cast<double>(i) < left - given; ++i)
      ++exact[remainders[i].second];
    break;
  }
  return exact;
}

/// How many tokens the buffers of the layers hold in the end, the window not counted. `budgets`
/// stands for lines 7 to 11 and is given the counts of the layers so far. The last update is over
/// all layers, whether or not m divides their number; m = 0 is that one alone.
inline std::vector<std::int64_t> paper_lengths(
    const DynamicKvInput& in,
    const std::function<std::vector<std::int64_t>(const std::vector<std::int64_t>&)>& budgets) {
  std::vector<std::vector<std::vector<std::int64_t>>> buffers;  // [layer][head] of positions
  for (std::int64_t l = 1; l <= in.layers(); ++l) {
    auto& of_layer = buffers.emplace_back();
    for (std::int64_t h = 0; h < in.heads; ++h) {  // line 20
      const float* a =
          &in.scores[static_cast<std::size_t>(l - 1)][static_cast<std::size_t>(h * in.positions)];
      auto& buffer = of_layer.emplace_back();
      for (std::int64_t j = 0; j < in.positions; ++j) buffer.push_back(j);
      std::stable_sort(buffer.begin(), buffer.end(),
                       [a](std::int64_t i, std::int64_t j) { return a[i] > a[j]; });
      buffer.resize(static_cast<std::size_t>(in.bs()));
    }
    if (l != in.layers() && (in.update == 0 || l % in.update != 0)) continue;
    const auto bl = budgets(paper_counts(in, l));  // line 25
    for (std::size_t i = 0; i < buffers.size(); ++i)
      for (auto& buffer : buffers[i])  // line 28: [:BL_i] of what is there
        buffer.resize(std::min(buffer.size(), static_cast<std::size_t>(bl[i])));
  }
  std::vector<std::int64_t> lengths;
  for (const auto& of_layer : buffers) lengths.push_back(std::ssize(of_layer.front()));
  return lengths;
}

/// As the paper has it, what rounding and the buffers cut off being lost.
inline std::vector<std::int64_t> paper_lengths(const DynamicKvInput& in) {
  return paper_lengths(in, [&](const auto& counts) { return paper_budgets(in, counts); });
}

}  // namespace kvatlas::testing_support
