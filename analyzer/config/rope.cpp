// SPDX-License-Identifier: Apache-2.0
#include "analyzer/config/rope.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace kvatlas::model {
namespace {

std::vector<float> powers(double theta, std::int64_t dim) {
  std::vector<float> values;
  for (std::int64_t i = 0; i < dim; i += 2) {
    const float exponent = static_cast<float>(i) / static_cast<float>(dim);
    values.push_back(static_cast<float>(std::pow(theta, static_cast<double>(exponent))));
  }
  return values;
}

void scale_llama3(const Rope& rope, std::vector<float>& inverse) {
  const double context = static_cast<double>(rope.original_context);
  for (float& frequency : inverse) {
    const double wavelength = 2.0 * std::numbers::pi / frequency;
    if (wavelength < context / rope.high_freq_factor) continue;
    if (wavelength > context / rope.low_freq_factor) {
      frequency = static_cast<float>(frequency / rope.factor);
      continue;
    }
    const double smooth = (context / wavelength - rope.low_freq_factor) /
                          (rope.high_freq_factor - rope.low_freq_factor);
    frequency = static_cast<float>((1.0 - smooth) * frequency / rope.factor + smooth * frequency);
  }
}

/// YaRN keeps the fast dimensions, interpolates the slow ones and blends between the two.
void scale_yarn(const Rope& rope, std::int64_t dim, std::vector<float>& inverse) {
  const double context = static_cast<double>(rope.original_context);
  const auto dimension_of = [&](double rotations) {
    return static_cast<double>(dim) * std::log(context / (rotations * 2.0 * std::numbers::pi)) /
           (2.0 * std::log(rope.theta));
  };
  double low = dimension_of(rope.beta_fast), high = dimension_of(rope.beta_slow);
  if (rope.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, static_cast<double>(dim - 1));
  if (low == high) high += 0.001;
  for (std::size_t i = 0; i < inverse.size(); ++i) {
    const double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    inverse[i] = static_cast<float>(inverse[i] / rope.factor * ramp + inverse[i] * (1.0 - ramp));
  }
}

double yarn_scale(const Rope& rope) {
  if (rope.attention_factor) return *rope.attention_factor;
  if (rope.mscale.value_or(0.0) != 0.0 && rope.mscale_all_dim.value_or(0.0) != 0.0)
    return yarn_mscale(rope, *rope.mscale) / yarn_mscale(rope, *rope.mscale_all_dim);
  return yarn_mscale(rope, 1.0);
}

double longrope_scale(const Rope& rope, std::int64_t context_length) {
  if (rope.attention_factor) return *rope.attention_factor;
  const double original = static_cast<double>(rope.original_context);
  const double factor =
      rope.factor != 1.0 ? rope.factor : static_cast<double>(context_length) / original;
  return factor <= 1.0 ? 1.0 : std::sqrt(1.0 + std::log(factor) / std::log(original));
}

}  // namespace

double yarn_mscale(const Rope& rope, double weight) {
  return rope.factor <= 1.0 ? 1.0 : 0.1 * weight * std::log(rope.factor) + 1.0;
}

RopeFrequencies rope_frequencies(const Rope& rope, std::int64_t rotary_dim,
                                 std::int64_t context_length, std::int64_t n_tokens) {
  double theta = rope.theta;
  if (rope.kind == RopeKind::dynamic) {
    const double dim = static_cast<double>(rotary_dim);
    const double trained = static_cast<double>(rope.original_context);
    const double length = std::max(static_cast<double>(n_tokens), trained);
    theta *= std::pow(rope.factor * length / trained - (rope.factor - 1.0), dim / (dim - 2.0));
  }
  RopeFrequencies result;
  result.inverse_frequency = powers(theta, rotary_dim);
  auto& inverse = result.inverse_frequency;
  const auto& stretch = n_tokens > rope.original_context ? rope.long_factor : rope.short_factor;
  for (std::size_t i = 0; i < inverse.size(); ++i) {
    if (rope.kind == RopeKind::longrope) inverse[i] = static_cast<float>(stretch[i]) * inverse[i];
    inverse[i] = 1.0f / inverse[i];
    if (!rope.divisors.empty()) inverse[i] /= static_cast<float>(rope.divisors[i]);
  }
  switch (rope.kind) {
    case RopeKind::plain:
    case RopeKind::dynamic:
      break;
    case RopeKind::linear:
      for (float& frequency : inverse) frequency /= static_cast<float>(rope.factor);
      break;
    case RopeKind::llama3:
      scale_llama3(rope, inverse);
      break;
    case RopeKind::yarn:
      scale_yarn(rope, rotary_dim, inverse);
      result.scale = static_cast<float>(yarn_scale(rope));
      break;
    case RopeKind::proportional:
      for (float& frequency : inverse) frequency /= static_cast<float>(rope.factor);
      std::fill(inverse.begin() +
                    static_cast<std::ptrdiff_t>(rope.share * static_cast<double>(rotary_dim) / 2),
                inverse.end(), 0.0F);
      break;
    case RopeKind::longrope:
      result.scale = static_cast<float>(longrope_scale(rope, context_length));
      break;
  }
  return result;
}

}  // namespace kvatlas::model
