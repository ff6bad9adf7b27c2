// SPDX-License-Identifier: Apache-2.0
#include "calibrate/rules/fp8_scales.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <limits>
#include <map>
#include <numeric>

#include "analyzer/profile/checked_arrays.hpp"
#include "analyzer/profile/statistics.hpp"
#include "base/error.hpp"
#include "base/plain_text.hpp"
#include "calibrate/rules/read_evidence.hpp"

namespace kvatlas::calibrate {
namespace {

using profile::kMagnitudeBins;
using profile::magnitude_of_bin;

/// The share of the numbers that a scale may cut off where the rule looks for the best one.
constexpr double kMostCutPercent = 1;
/// How many places of a bin stand for its numbers.
constexpr int kPlaces = 8;

std::int64_t numbers_in(const Magnitudes& of) {
  return std::accumulate(of.counts.begin(), of.counts.end(), std::int64_t{0});
}

/// Where the numbers of a bin end: the largest of all in its own bin and beyond.
double end_of_bin(const Magnitudes& of, std::int64_t bin) {
  const double begin = magnitude_of_bin(bin);
  const double next = bin + 1 < kMagnitudeBins ? magnitude_of_bin(bin + 1) : of.largest;
  return std::max(begin, std::min(of.largest, next));
}

/// Three digits.
std::string shortened(double number) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g", number);
  return text;
}

/// Calls `take` with each place of each bin that holds numbers, and how many stand there.
template <class Take>
void for_places(const Magnitudes& of, const Take& take) {
  for (std::int64_t bin = 0; bin < kMagnitudeBins; ++bin) {
    const auto count = of.counts[static_cast<std::size_t>(bin)];
    if (count == 0) continue;
    const double begin = magnitude_of_bin(bin), length = end_of_bin(of, bin) - begin;
    for (int place = 0; place < kPlaces; ++place)
      take(bin, begin + length * (place + 0.5) / kPlaces, static_cast<double>(count) / kPlaces);
  }
}

/// What the scale could be of which the least error is wanted: with each the end of a bin becomes
/// 448.
std::vector<double> candidates(const Magnitudes& of) {
  std::vector<double> out = {of.largest / kLargestE4m3};
  const double least = of.percentile(100 - kMostCutPercent);
  for (std::int64_t bin = kMagnitudeBins - 1; bin > 0 && magnitude_of_bin(bin) >= least; --bin)
    if (magnitude_of_bin(bin) < of.largest) out.push_back(magnitude_of_bin(bin) / kLargestE4m3);
  return out;
}

template <class Cost>
double best_scale(const Magnitudes& of, const Cost& cost) {
  double best = 0, least = std::numeric_limits<double>::infinity();
  for (const double scale : candidates(of))
    if (const double here = cost(of, scale); here < least) {  // of equal ones the greatest scale
      least = here;
      best = scale;
    }
  return best;
}

}  // namespace

void Magnitudes::add(const Magnitudes& other) {
  largest = std::max(largest, other.largest);
  counts.resize(kMagnitudeBins);
  for (std::size_t bin = 0; bin < other.counts.size(); ++bin) counts[bin] += other.counts[bin];
}

double Magnitudes::percentile(double percent) const {
  const double wanted = static_cast<double>(numbers_in(*this)) * percent / 100;
  double seen = 0;
  for (std::int64_t bin = 0; bin < kMagnitudeBins; ++bin) {
    seen += static_cast<double>(counts[static_cast<std::size_t>(bin)]);
    if (seen >= wanted && seen > 0) return end_of_bin(*this, bin);
  }
  return largest;
}

ScaleRule ScaleRule::parse(const std::string& word) {
  if (word == "amax") return {Kind::largest};
  if (word == "mse") return {Kind::squared_error};
  if (word == "kl") return {Kind::divergence};
  double percent = 0;
  const char* end = word.data() + word.size();
  const bool read =
      word.starts_with('p') && std::from_chars(word.data() + 1, end, percent).ptr == end;
  if (!read || !(percent >= 50 && percent <= 100))
    fail(ErrorCode::usage, "there is no rule ", quoted(word),
         " for scales: choose amax, mse, kl, or a percentile from p50 to p100, such as p99.9");
  return {Kind::percentile, percent};
}

double in_e4m3(double value, double scale) {
  const double x = std::min(std::abs(value) / scale, kLargestE4m3);
  const int exponent = std::max(x > 0 ? std::ilogb(x) : -6, -6);  // below 2^-6 steps stay equal
  const double step = std::ldexp(1, exponent - 3);
  return std::copysign(std::min(std::nearbyint(x / step) * step, kLargestE4m3) * scale, value);
}

double relative_error(const Magnitudes& of, double scale) {
  double error = 0, all = 0;
  for_places(of, [&](std::int64_t, double value, double count) {
    const double off = in_e4m3(value, scale) - value;
    error += count * off * off;
    all += count * value * value;
  });
  return all > 0 ? error / all : 0;
}

double divergence(const Magnitudes& of, double scale) {
  // P: what is to be stored, in each bin. The codes: how many of the numbers that are not cut
  // become each, and in how many bins those lie.
  std::map<std::int64_t, double> wanted;
  struct Code {
    double count = 0, bins = 0;
  };
  std::map<double, Code> codes;
  const double most = kLargestE4m3 * scale;
  const auto last = profile::magnitude_bin(static_cast<float>(std::min(most, of.largest)));
  double total = 0, kept = 0;
  for (std::int64_t bin = 0; bin < kMagnitudeBins; ++bin) {
    const auto count = static_cast<double>(of.counts[static_cast<std::size_t>(bin)]);
    if (count == 0) continue;
    wanted[std::min(bin, last)] += count;
    total += count;
    if (bin > last) continue;
    Code& code = codes[in_e4m3((magnitude_of_bin(bin) + end_of_bin(of, bin)) / 2, scale)];
    code.count += count;
    ++code.bins;
    kept += count;
  }
  double sum = 0;
  for (const auto& [bin, count] : wanted) {
    const auto code = codes.find(in_e4m3((magnitude_of_bin(bin) + end_of_bin(of, bin)) / 2, scale));
    // Only what is cut lies there: as if one of all numbers were stored.
    const double stored =
        code == codes.end() ? 1 / total : code->second.count / code->second.bins / kept;
    sum += count / total * std::log(count / total / stored);
  }
  return sum;
}

double scale_of(const Magnitudes& of, const ScaleRule& rule) {
  double scale = 0;
  switch (rule.kind) {
    case ScaleRule::Kind::largest:
      scale = of.largest / kLargestE4m3;
      break;
    case ScaleRule::Kind::percentile:
      scale = of.percentile(rule.percent) / kLargestE4m3;
      break;
    case ScaleRule::Kind::squared_error:
      scale = best_scale(of, relative_error);
      break;
    case ScaleRule::Kind::divergence:
      scale = best_scale(of, divergence);
      break;
  }
  // As engines hold it.
  return scale > 0 ? static_cast<double>(static_cast<float>(std::max(scale, kLeastScale))) : 1;
}

Ranges read_ranges(const profile::Reader& profile) {
  namespace name = profile::name;
  require_captured(profile, name::kMagnitudes, "ranges");
  require_captured(profile, name::kLargest, "ranges");
  const auto shape = cache_shape(profile.header());
  const auto L = shape.layers, K = shape.kv_heads;
  const auto empty = [&] {
    return HeadMagnitudes(
        static_cast<std::size_t>(L),
        std::vector<Magnitudes>(
            static_cast<std::size_t>(K),
            {0, std::vector<std::int64_t>(static_cast<std::size_t>(kMagnitudeBins), 0)}));
  };
  Ranges out{empty(), empty(), empty()};
  for (std::size_t s = 0; s < profile.samples().size(); ++s) {
    if (!profile.has(s, name::kMagnitudes)) continue;
    const auto largest = profile::floats_of(profile, s, name::kLargest, {}, {3, L, K});
    const auto counts =
        profile::integers_of(profile, s, name::kMagnitudes, {3, L, K, kMagnitudeBins});
    for (const auto& [side, magnitudes] : {std::pair{std::size_t{0}, &out.keys},
                                           {std::size_t{1}, &out.values},
                                           {std::size_t{2}, &out.queries}})
      for (std::size_t i = 0; i < static_cast<std::size_t>(L * K); ++i) {
        const std::size_t at = side * static_cast<std::size_t>(L * K) + i;
        Magnitudes of_sample;
        of_sample.largest = static_cast<double>(largest[at]);
        if (!std::isfinite(of_sample.largest) || of_sample.largest < 0)
          fail(ErrorCode::unreadable, name::kLargest, " of sample ", s,
               " holds what is no magnitude: the model's keys or values overflow, or the profile "
               "is damaged");
        const auto from = counts.begin() + static_cast<std::ptrdiff_t>(at * kMagnitudeBins);
        of_sample.counts.assign(from, from + kMagnitudeBins);
        for (const auto count : of_sample.counts)
          if (count < 0 || count > std::int64_t{1} << 40)
            fail(ErrorCode::unreadable, name::kMagnitudes, " of sample ", s, " holds ", count,
                 ", which is no count");
        (*magnitudes)[i / static_cast<std::size_t>(K)][i % static_cast<std::size_t>(K)].add(
            of_sample);
      }
  }
  return out;
}

Fp8Scales fp8_scales(const Ranges& ranges, const ScaleRule& rule, ScalesBy by) {
  const auto side = [&](const HeadMagnitudes& layers) {
    HeadScales scales;
    for (const auto& heads : layers) {
      auto& row = scales.emplace_back();
      Magnitudes together;
      for (const auto& head : heads) {
        if (by == ScalesBy::head) row.push_back(scale_of(head, rule));
        together.add(head);
      }
      if (by == ScalesBy::layer) row.push_back(scale_of(together, rule));
    }
    return scales;
  };
  return {side(ranges.keys), side(ranges.values), side(ranges.queries)};
}

std::vector<double> shared_scales(const Fp8Scales& scales) {
  std::vector<double> out;
  for (std::size_t l = 0; l < scales.keys.size(); ++l) {
    const auto largest = [&](const std::vector<double>& row) {
      return *std::max_element(row.begin(), row.end());
    };
    out.push_back(std::max(largest(scales.keys[l]), largest(scales.values[l])));
  }
  return out;
}

ScaleErrors errors_under(const Ranges& ranges, const Fp8Scales& scales) {
  const auto side = [](const HeadMagnitudes& layers, const HeadScales& of_side) {
    double sum = 0, heads = 0;
    for (std::size_t l = 0; l < layers.size(); ++l)
      for (std::size_t g = 0; g < layers[l].size(); ++g, ++heads)
        sum += relative_error(layers[l][g], scale_in(of_side, static_cast<std::int64_t>(l),
                                                     static_cast<std::int64_t>(g)));
    return heads > 0 ? sum / heads : 0;
  };
  return {side(ranges.keys, scales.keys), side(ranges.values, scales.values)};
}

std::string three_digits_percent(double share) { return shortened(100 * share) + " %"; }

std::string worth_text(const Ranges& ranges, const Fp8Scales& scales, const std::string& rule) {
  const auto largest = [](const HeadMagnitudes& layers) {
    double out = 0;
    for (const auto& heads : layers)
      for (const auto& head : heads) out = std::max(out, head.largest);
    return out;
  };
  const auto with = errors_under(ranges, scales), without = errors_under(ranges, {});
  std::string text = str("The scales are by the rule ", rule, "; the largest key is ",
                         shortened(largest(ranges.keys)), " and the largest value ",
                         shortened(largest(ranges.values)),
                         ". What rounding loses, as a share of the squares of the numbers: keys ",
                         three_digits_percent(with.keys), " (", three_digits_percent(without.keys),
                         " with the scale 1), values ", three_digits_percent(with.values), " (",
                         three_digits_percent(without.values), ").");
  if (with.keys > 0.8 * without.keys && with.values > 0.8 * without.values)
    text +=
        " Here scales gain next to nothing: E4M3 keeps the same three bits at every size from "
        "2^-6 to 448, where these numbers lie.";
  return text;
}

}  // namespace kvatlas::calibrate
