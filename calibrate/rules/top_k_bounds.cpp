// SPDX-License-Identifier: Apache-2.0
#include "calibrate/rules/top_k_bounds.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "base/error.hpp"

namespace kvatlas::calibrate {
namespace {

/// The two distributions over the tokens that both lists hold, and over those of one list alone.
struct Matched {
  struct Both {
    double p, q;
  };
  std::vector<Both> common;
  std::vector<double> p_alone, q_alone;
};

Matched match(const TopTokens& full, const TopTokens& compressed) {
  const auto by_id = [](const TopTokens& of) {
    auto sorted = of.tokens;
    std::sort(sorted.begin(), sorted.end(),
              [](const auto& a, const auto& b) { return a.id < b.id; });
    return sorted;
  };
  const auto p = by_id(full), q = by_id(compressed);
  Matched out;
  for (auto i = p.begin(), j = q.begin(); i != p.end() || j != q.end();) {
    if (j == q.end() || (i != p.end() && i->id < j->id))
      out.p_alone.push_back(std::exp((i++)->log_prob));
    else if (i == p.end() || j->id < i->id)
      out.q_alone.push_back(std::exp((j++)->log_prob));
    else
      out.common.push_back({std::exp((i++)->log_prob), std::exp((j++)->log_prob)});
  }
  return out;
}

/// p ln(p/q), as the limit has it where one of them is 0.
double kl_term(double p, double q) {
  if (p <= 0) return 0;
  return q > 0 ? p * std::log(p / q) : std::numeric_limits<double>::infinity();
}

double js_term(double p, double q) {
  const double both = p + q;
  const auto half = [&](double of) { return of > 0 ? of * std::log(2 * of / both) : 0; };
  return both > 0 ? (half(p) + half(q)) / 2 : 0;
}

/// The least KL divergence of all distributions that agree with both lists, where no token outside
/// a list has more than its `most_outside`. By the conditions of Karush, Kuhn and Tucker all tokens
/// that neither list holds have one ratio q/p, and those of one list come as near to it as they
/// may. 0 where no such ratio is found.
double least_kl(const Matched& of, double p_rest, double q_rest, double p_most, double q_most) {
  const auto q_of = [&](double p, double ratio) { return std::min(q_most, ratio * p); };
  const auto p_of = [&](double q, double ratio) { return std::min(p_most, q / ratio); };
  const auto too_much = [&](double ratio) {
    double sum = ratio * p_rest - q_rest;
    for (const double q : of.q_alone) sum -= std::min(ratio * p_most, q);
    for (const double p : of.p_alone) sum += q_of(p, ratio);
    return sum > 0;
  };
  double low = -60, high = 60;  // the ratio's logarithm
  for (int i = 0; i < 100; ++i) {
    const double middle = (low + high) / 2;
    (too_much(std::exp(middle)) ? high : low) = middle;
  }
  const double ratio = std::exp(low);
  double sum = 0, p_left = p_rest, q_left = q_rest;
  for (const auto& [p, q] : of.common) sum += kl_term(p, q);
  for (const double p : of.p_alone) {
    sum += kl_term(p, q_of(p, ratio));
    q_left -= q_of(p, ratio);
  }
  for (const double q : of.q_alone) {
    sum += kl_term(p_of(q, ratio), q);
    p_left -= p_of(q, ratio);
  }
  constexpr double kRounding = 1e-12;
  if (p_left < -kRounding || q_left < -kRounding) return 0;
  if (p_left < kRounding) return sum;
  return q_left < kRounding ? 0 : sum + kl_term(p_left, q_left);
}

}  // namespace

TopTokens top_tokens(std::vector<TopToken> tokens, std::size_t count) {
  std::sort(tokens.begin(), tokens.end(), [](const auto& a, const auto& b) {
    return a.log_prob > b.log_prob || (a.log_prob == b.log_prob && a.id < b.id);
  });
  double sum = 0;
  std::vector<std::int64_t> ids;
  for (auto& [id, log_prob] : tokens) {
    if (!(log_prob <= 1e-3))  // also what is no number
      fail(ErrorCode::unreadable, "a log-probability of ", log_prob, " is none");
    log_prob = std::min(log_prob, 0.0);
    sum += std::exp(log_prob);
    ids.push_back(id);
  }
  if (sum > 1.001)
    fail(ErrorCode::unreadable, "the probabilities of a token's list are ", sum, " together");
  std::sort(ids.begin(), ids.end());
  if (std::adjacent_find(ids.begin(), ids.end()) != ids.end())
    fail(ErrorCode::unreadable, "a token stands twice in one list of log-probabilities");
  TopTokens out;
  if (count > 0 && tokens.size() >= count) out.most_outside = std::exp(tokens[count - 1].log_prob);
  out.tokens = std::move(tokens);
  return out;
}

DivergenceBounds divergence_bounds(const TopTokens& full, const TopTokens& compressed) {
  const Matched of = match(full, compressed);
  double p_common = 0, q_common = 0, kl = 0, js = 0, apart = 0, shared = 0;
  for (const auto& [p, q] : of.common) {
    p_common += p;
    q_common += q;
    kl += kl_term(p, q);
    js += js_term(p, q);
    apart += std::abs(p - q);
    shared += std::min(p, q);
  }
  const auto sum_of = [](const std::vector<double>& values) {
    double sum = 0;
    for (const double value : values) sum += value;
    return sum;
  };
  const double p_out = std::max(0.0, 1 - p_common), q_out = std::max(0.0, 1 - q_common);
  const double p_rest = std::max(0.0, p_out - sum_of(of.p_alone));
  const double q_rest = std::max(0.0, q_out - sum_of(of.q_alone));
  DivergenceBounds out;
  // The log-sum inequality: all that is not common counts as one token. Sums that rounding makes a
  // little less than 1 leave a rest of nothing, of which nothing can be said.
  constexpr double kLeastRest = 1e-9;
  out.kl_low = kl + (q_out > kLeastRest ? kl_term(p_out, q_out) : 0);
  out.kl_low = std::max(
      {0.0, out.kl_low, least_kl(of, p_rest, q_rest, full.most_outside, compressed.most_outside)});
  out.tv_low = std::min(1.0, (apart + std::abs(p_out - q_out)) / 2);
  out.tv_high = std::clamp(1 - shared, out.tv_low, 1.0);
  out.js_low = std::max(0.0, js + js_term(p_out, q_out));
  out.js_high = std::clamp(js + (p_out + q_out) / 2 * std::numbers::ln2, out.js_low,
                           std::max(out.js_low, std::numbers::ln2));
  return out;
}

AgreementBounds prefix_agreement(std::span<const std::int64_t> full,
                                 std::span<const std::int64_t> compressed) {
  if (full.empty()) return {compressed.empty() ? 1.0 : 0.0, compressed.empty() ? 1.0 : 0.0};
  const auto same = static_cast<double>(
      std::mismatch(full.begin(), full.end(), compressed.begin(), compressed.end()).first -
      full.begin());
  const auto all = static_cast<double>(full.size());
  return {same / all, same == all ? 1.0 : 1 - 1 / all};
}

}  // namespace kvatlas::calibrate
