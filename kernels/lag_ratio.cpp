// SPDX-License-Identifier: Apache-2.0
#include <charconv>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "kernels/lag_scores.hpp"

namespace kvatlas::kernels {
namespace {

/// A ratio as numerator and denominator: exact for decimals and fractions.
std::pair<std::int64_t, std::int64_t> parse_ratio(std::string_view text) {
  const auto whole = [&](std::string_view digits) {
    if (digits.empty() || digits.size() > 9 ||
        digits.find_first_not_of("0123456789") != digits.npos)
      fail(ErrorCode::usage, "ratio ", quoted(text),
           ": expected a number as 0.25 or 1/4, of at most 9 digits or decimals");
    std::int64_t value = 0;
    std::from_chars(digits.data(), digits.data() + digits.size(), value);
    return value;
  };
  std::int64_t numerator = 0, denominator = 1;
  if (const auto slash = text.find('/'); slash != text.npos) {
    numerator = whole(text.substr(0, slash));
    denominator = whole(text.substr(slash + 1));
  } else if (const auto point = text.find('.'); point != text.npos) {
    const auto decimals = text.substr(point + 1);
    for (std::size_t i = 0; i < decimals.size() && i < 9; ++i) denominator *= 10;
    numerator = (point == 0 ? 0 : whole(text.substr(0, point))) * denominator + whole(decimals);
  } else {
    numerator = whole(text);
  }
  if (numerator == 0 || denominator == 0 || numerator > denominator)
    fail(ErrorCode::usage, "ratio ", quoted(text), ": expected more than 0 and at most 1");
  return {numerator, denominator};
}

}  // namespace

std::int64_t kept_of_partition(std::string_view ratio, std::int64_t lag) {
  const auto [numerator, denominator] = parse_ratio(ratio);
  return numerator * lag / denominator;
}

}  // namespace kvatlas::kernels
