// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include "base/error.hpp"
#include "viewer/maps/scale.hpp"

namespace kvatlas::viewer {

namespace {

std::string number_text(double value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.4g", value);
  return text.data();
}

Tick tick_at(const Scale& scale, double value) {
  return {value, scale.position(value), number_text(value)};
}

/// The smallest of 1, 2 and 5 times a power of ten that is not below `least`.
double round_step(double least) {
  const double decade = std::pow(10.0, std::floor(std::log10(least)));
  for (const double factor : {1.0, 2.0, 5.0})
    if (factor * decade >= least * (1 - 1e-9)) return factor * decade;
  return 10 * decade;
}

/// Multiples of one round step.
std::vector<Tick> even_ticks(const Scale& scale, int most) {
  const auto [low, high] = scale.range();
  const double step = round_step((high - low) / (most - 1));
  const double slack = 1e-9 * step;
  std::vector<Tick> found;
  const double first = std::ceil((low - slack) / step);
  for (int k = 0; k < most; ++k) {
    const double value = (first + k) * step;
    if (value > high + slack) break;
    found.push_back(tick_at(scale, value));
  }
  return found;
}

/// Powers of ten, if many only each second, third, …
std::vector<Tick> decade_ticks(const Scale& scale, int most) {
  const auto [low, high] = scale.range();
  const int first = static_cast<int>(std::ceil(std::log10(low) - 1e-9));
  const int last = static_cast<int>(std::floor(std::log10(high) + 1e-9));
  if (last - first < 1) return even_ticks(scale, most);
  const int step = std::max(1, (last - first + most - 1) / most);
  std::vector<Tick> found;
  for (int exponent = first; exponent <= last; exponent += step)
    if (static_cast<int>(found.size()) < most)
      found.push_back(tick_at(scale, std::pow(10.0, exponent)));
  return found;
}

std::vector<Tick> quarter_ticks(const Scale& scale, int most) {
  const int parts = most >= 5 ? 4 : most >= 3 ? 2 : 1;
  std::vector<Tick> found;
  for (int part = 0; part <= parts; ++part) {
    const double position = static_cast<double>(part) / parts;
    const double value = scale.value_at(position);
    found.push_back({value, position, number_text(value)});
  }
  return found;
}

}  // namespace

std::vector<Tick> ticks(const Scale& scale, int most) {
  if (most < 2) fail(ErrorCode::internal, "a legend of ", most, " ticks");
  switch (scale.kind()) {
    case ScaleKind::log:
      return decade_ticks(scale, most);
    case ScaleKind::rank:
      return quarter_ticks(scale, most);
    default:
      return even_ticks(scale, most);
  }
}

}  // namespace kvatlas::viewer
