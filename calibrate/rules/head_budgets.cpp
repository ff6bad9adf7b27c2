// SPDX-License-Identifier: Apache-2.0
// How a budget is shared among the KV heads of all layers.
#include <algorithm>
#include <numeric>

#include "base/error.hpp"
#include "calibrate/rules/rules.hpp"

namespace kvatlas::calibrate {
namespace {

/// A straight piece of a head's hull: so many tokens that keep so much attention each.
struct Piece {
  std::size_t layer = 0, head = 0;
  std::int64_t tokens = 0;
  double gain = 0;
};

/// The pieces of the concave hull over a curve, from no token on.
std::vector<Piece> hull_of(const KeptCurve& curve, std::size_t layer, std::size_t head) {
  std::vector<std::pair<std::int64_t, double>> corners = {{0, 0}};
  const auto gain = [&](std::size_t from, std::pair<std::int64_t, double> to) {
    return (to.second - corners[from].second) / static_cast<double>(to.first - corners[from].first);
  };
  for (std::size_t i = 0; i < curve.tokens.size(); ++i) {
    const std::pair point{curve.tokens[i], curve.kept[i]};
    while (corners.size() > 1 &&
           gain(corners.size() - 2, corners.back()) <= gain(corners.size() - 1, point))
      corners.pop_back();
    corners.push_back(point);
  }
  std::vector<Piece> pieces;
  for (std::size_t i = 1; i < corners.size(); ++i)
    pieces.push_back(
        {layer, head, corners[i].first - corners[i - 1].first, gain(i - 1, corners[i])});
  return pieces;
}

}  // namespace

double KeptCurve::at(std::int64_t count) const {
  std::int64_t before = 0;
  double kept_before = 0;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (count <= tokens[i])
      return kept_before + (kept[i] - kept_before) * static_cast<double>(count - before) /
                               static_cast<double>(tokens[i] - before);
    before = tokens[i];
    kept_before = kept[i];
  }
  return kept_before;
}

std::vector<std::vector<std::int64_t>> budgets_by_score(const Masses& scores,
                                                        const SharedTokens& tokens) {
  std::vector<double> weights;
  for (const auto& row : scores) weights.insert(weights.end(), row.begin(), row.end());
  const std::int64_t least = std::min({tokens.least, tokens.mean, tokens.most}),
                     room = tokens.most - least;
  std::int64_t left = (tokens.mean - least) * std::ssize(weights);
  std::vector<std::int64_t> more(weights.size(), room);
  std::vector<std::size_t> sharing(weights.size());
  std::iota(sharing.begin(), sharing.end(), std::size_t{0});
  while (!sharing.empty()) {
    std::vector<double> theirs;
    for (const auto i : sharing) theirs.push_back(weights[i]);
    if (std::accumulate(theirs.begin(), theirs.end(), 0.0) <= 0)
      std::fill(theirs.begin(), theirs.end(), 1);
    const auto shares = round_to_total(theirs, left);
    std::vector<std::size_t> below;
    for (std::size_t i = 0; i < sharing.size(); ++i)
      if (shares[i] < room) below.push_back(sharing[i]);
    if (below.size() == sharing.size()) {
      for (std::size_t i = 0; i < sharing.size(); ++i) more[sharing[i]] = shares[i];
      break;
    }
    left -= room * (std::ssize(sharing) - std::ssize(below));  // the others share the rest
    sharing = std::move(below);
  }
  std::vector<std::vector<std::int64_t>> budgets;
  std::size_t next = 0;
  for (const auto& row : scores) {
    auto& out = budgets.emplace_back();
    for (std::size_t head = 0; head < row.size(); ++head) out.push_back(least + more[next++]);
  }
  return budgets;
}

std::vector<std::vector<std::int64_t>> budgets_by_gain(
    const std::vector<std::vector<KeptCurve>>& curves, const SharedTokens& tokens) {
  std::vector<Piece> pieces;
  std::vector<std::vector<std::int64_t>> budgets;
  const std::int64_t least = std::min({tokens.least, tokens.mean, tokens.most});
  std::int64_t left = 0;
  for (std::size_t layer = 0; layer < curves.size(); ++layer) {
    budgets.emplace_back(curves[layer].size(), 0);
    for (std::size_t head = 0; head < curves[layer].size(); ++head) {
      left += tokens.mean;
      std::int64_t known = 0;
      for (Piece piece : hull_of(curves[layer][head], layer, head)) {
        piece.tokens = std::min(piece.tokens, tokens.most - known);
        known += piece.tokens;
        std::int64_t& budget = budgets[layer][head];
        const std::int64_t first = std::min(piece.tokens, least - budget);
        budget += first;
        left -= first;
        piece.tokens -= first;
        if (piece.tokens > 0) pieces.push_back(piece);
      }
    }
  }
  std::stable_sort(pieces.begin(), pieces.end(),
                   [](const Piece& a, const Piece& b) { return a.gain > b.gain; });
  for (const Piece& piece : pieces) {
    const std::int64_t given = std::min(piece.tokens, left);
    budgets[piece.layer][piece.head] += given;
    left -= given;
  }
  return budgets;
}

}  // namespace kvatlas::calibrate
