// SPDX-License-Identifier: Apache-2.0
// Scales of FP8 caches from the magnitudes that a profile counted (docs/precision.md#scales).
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "analyzer/profile/profile.hpp"
#include "calibrate/policy/policy.hpp"

namespace kvatlas::calibrate {

/// The largest number of E4M3.
inline constexpr double kLargestE4m3 = 448;

/// How many numbers have each magnitude, in the bins of profile::magnitude_bin(), and the largest.
struct Magnitudes {
  double largest = 0;
  std::vector<std::int64_t> counts;

  /// Those of both.
  void add(const Magnitudes& other);
  /// What so many percent of the numbers do not exceed: the end of a bin, or the largest.
  double percentile(double percent) const;
};

/// How a scale is found. All but `percentile` are between the largest magnitude / 448 and what cuts
/// 1 % of the numbers off.
struct ScaleRule {
  enum class Kind : std::uint8_t { largest, percentile, squared_error, divergence };
  Kind kind = Kind::largest;
  double percent = 0;  // percentile
  /// "amax", "mse", "kl" or "p99.9"; Error(usage) for anything else.
  static ScaleRule parse(const std::string& word);
};

/// What E4M3 makes of `value / scale`, to the nearest, times `scale`.
double in_e4m3(double value, double scale);
/// The mean of the squares of what rounding with this scale changes, over the mean of all squares.
/// The numbers of a bin are taken to lie evenly in it.
double relative_error(const Magnitudes& of, double scale);
/// How far the numbers' distribution lies from that of what is stored, in nats: the numbers beyond
/// 448 x scale are put at that, and those that become one code are spread evenly over their bins.
double divergence(const Magnitudes& of, double scale);
/// 1 where all numbers are zero.
double scale_of(const Magnitudes& of, const ScaleRule& rule);

/// [layer][KV head], over all samples.
using HeadMagnitudes = std::vector<std::vector<Magnitudes>>;
struct Ranges {
  HeadMagnitudes keys, values, queries;
};
/// Error(usage) if the profile has none, Error(unreadable) if they are damaged.
Ranges read_ranges(const profile::Reader& profile);

/// One scale for all KV heads of a layer, or one each.
enum class ScalesBy : std::uint8_t { layer, head };
Fp8Scales fp8_scales(const Ranges& ranges, const ScaleRule& rule, ScalesBy by);

/// The greater of the scales of keys and values of a layer, for engines that have one for both.
std::vector<double> shared_scales(const Fp8Scales& scales);

/// relative_error() of all layers' keys and values under the scales; with none, they are 1.
struct ScaleErrors {
  double keys = 0, values = 0;
};
ScaleErrors errors_under(const Ranges& ranges, const Fp8Scales& scales);
/// A share in percent, with three digits also where it is small.
std::string three_digits_percent(double share);
/// Where the scales are from, and what keys and values lose by rounding with them and with 1; a
/// sentence that says so where they gain next to nothing.
std::string worth_text(const Ranges& ranges, const Fp8Scales& scales, const std::string& rule);

}  // namespace kvatlas::calibrate
