// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <functional>
#include <map>

#include "analyzer/profile/checked_arrays.hpp"
#include "analyzer/profile/statistics.hpp"
#include "base/error.hpp"
#include "calibrate/inspect/diff.hpp"

namespace kvatlas::calibrate {
namespace {

namespace name = profile::name;

constexpr double kNormal95 = 1.96;

/// One figure of every sample: [sample], NaN where it was not captured.
using Figures = std::vector<double>;

/// The samples of both that are compared.
struct Pairing {
  std::vector<std::pair<std::size_t, std::size_t>> pairs;  // of equal tokens
  std::vector<std::size_t> first, second;                  // all, where there are no pairs
};

Pairing pair_samples(const profile::Reader& first, const profile::Reader& second) {
  Pairing out;
  std::map<std::vector<std::int32_t>, std::size_t> known;
  for (std::size_t i = 0; i < first.samples().size(); ++i) {
    known.emplace(first.tokens(i), i);
    out.first.push_back(i);
  }
  for (std::size_t i = 0; i < second.samples().size(); ++i) {
    out.second.push_back(i);
    if (const auto same = known.find(second.tokens(i)); same != known.end())
      out.pairs.emplace_back(same->second, i);
  }
  return out;
}

class Comparison {
 public:
  Comparison(const profile::Reader& first, const profile::Reader& second)
      : first_(first), second_(second), pairing_(pair_samples(first, second)) {}

  Diff diff() {
    const auto &a = first_.header(), &b = second_.header();
    if (a.n_layers != b.n_layers || a.n_heads != b.n_heads || a.n_kv_heads != b.n_kv_heads)
      fail(ErrorCode::usage, "the profiles are of models of ", a.n_layers, " layers, ", a.n_heads,
           " heads and ", a.n_kv_heads, " KV heads, and of ", b.n_layers, ", ", b.n_heads, " and ",
           b.n_kv_heads, ": only models of one shape are compared");
    say_pairing();
    const std::int64_t L = a.n_layers, H = a.n_heads, K = a.n_kv_heads;
    along_axis(name::kDecodeMass, "proximity", "layer mass", {L, H}, [&](std::int64_t i) {
      return Place{str("layer ", i / H), i / H};  // heads of a layer are averaged
    });
    along_axis(name::kKeptMass, "selection", "attention kept", {L, K}, [&](std::int64_t i) {
      return Place{str("layer ", i / K), i / K};
    });
    alone(name::kDivergence, "divergence of layers, mean over heads", {H, L, L},
          [&](std::int64_t i) {
            const std::int64_t one = i / L % L, other = i % L;
            return other < one ? Place{str("layers ", other, " and ", one), one * L + other}
                               : Place{"", -1};
          });
    for (const auto& [array, what] : {std::pair(name::kKeyNorm, "mean norm of keys"),
                                      std::pair(name::kValueNorm, "mean norm of values")})
      alone(
          array, what, {L, K, 4},
          [&](std::int64_t i) {
            return i % 4 == 1 ? Place{str("layer ", i / 4 / K, ", KV head ", i / 4 % K), i / 4}
                              : Place{"", -1};
          },
          true);
    std::stable_sort(out_.changes.begin(), out_.changes.end(),
                     [](const Change& x, const Change& y) { return x.size > y.size; });
    if (out_.compared == 0) fail(ErrorCode::usage, "the two profiles have no statistics in common");
    return std::move(out_);
  }

 private:
  /// Which figure an element of an array belongs to; elements of one key are averaged.
  struct Place {
    std::string name;
    std::int64_t key = 0;  // -1: to none
  };
  using PlaceOf = std::function<Place(std::int64_t element)>;

  void say_pairing() {
    const std::size_t a = pairing_.first.size(), b = pairing_.second.size();
    if (pairing_.pairs.size() >= 2)
      out_.notes.push_back(str(pairing_.pairs.size(), " samples have the same tokens in both (of ",
                               a, " and ", b, "), and are compared one by one"));
    else
      out_.notes.push_back(
          str("the samples (", a, " and ", b, ") have other tokens: their means are compared"));
  }

  /// Arrays with a row for each setting of an axis: rows of the same label are compared.
  void along_axis(const char* array, const char* axis, const char* what,
                  const std::vector<std::int64_t>& sizes, const PlaceOf& place) {
    if (!both_have(array, what)) return;
    const auto& of_first = profile::axis_of(first_.header(), axis).labels;
    const auto& of_second = profile::axis_of(second_.header(), axis).labels;
    for (std::size_t i = 0; i < of_first.size(); ++i) {
      const auto same = std::find(of_second.begin(), of_second.end(), of_first[i]);
      if (same == of_second.end()) continue;
      compare(array, str(what, ", ", printable(of_first[i])),
              {static_cast<std::int64_t>(i), same - of_second.begin()}, sizes, place, false);
    }
  }
  void alone(const char* array, const char* what, const std::vector<std::int64_t>& sizes,
             const PlaceOf& place, bool relative = false) {
    if (both_have(array, what)) compare(array, what, {-1, -1}, sizes, place, relative);
  }
  bool both_have(const char* array, const char* what) {
    const bool there = first_.has(array) && second_.has(array);
    if (!there && (first_.has(array) || second_.has(array)))
      out_.notes.push_back(str(what, ": only one of the profiles has it"));
    return there;
  }

  /// Of one sample, by key.
  static std::map<std::int64_t, double> figures(const profile::Reader& profile,
                                                std::size_t position, const char* array,
                                                std::int64_t row,
                                                const std::vector<std::int64_t>& sizes,
                                                const std::vector<Place>& places) {
    const std::vector<std::int64_t> leading(sizes.begin(), sizes.end() - 1);
    const auto values = row < 0 ? profile::floats_of(profile, position, array, {}, leading)
                                : profile::floats_of(profile, position, array, {row}, leading);
    if (values.size() != places.size())
      fail(ErrorCode::unreadable, array, " has ", values.size(), " values a sample, expected ",
           places.size());
    std::map<std::int64_t, std::pair<double, int>> sums;
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (places[i].key < 0) continue;
      auto& [sum, count] = sums[places[i].key];
      sum += values[i];
      ++count;
    }
    std::map<std::int64_t, double> means;
    for (const auto& [key, sum] : sums) means[key] = sum.first / sum.second;
    return means;
  }

  void compare(const char* array, const std::string& what,
               const std::pair<std::int64_t, std::int64_t>& rows,
               const std::vector<std::int64_t>& sizes, const PlaceOf& place, bool relative) {
    std::vector<Place> places;
    std::map<std::int64_t, std::string> names;
    std::int64_t elements = 1;
    for (const auto size : sizes) elements *= size;
    for (std::int64_t i = 0; i < elements; ++i) {
      places.push_back(place(i));
      if (places.back().key >= 0) names.emplace(places.back().key, places.back().name);
    }
    std::map<std::int64_t, std::pair<Figures, Figures>> all;
    const bool paired = pairing_.pairs.size() >= 2;
    const auto add = [&](const profile::Reader& profile, std::size_t position, std::int64_t row,
                         auto member) {
      for (const auto& [key, value] : figures(profile, position, array, row, sizes, places))
        (all[key].*member).push_back(value);
    };
    using Both = std::pair<Figures, Figures>;
    if (paired) {
      for (const auto& [a, b] : pairing_.pairs) {
        add(first_, a, rows.first, &Both::first);
        add(second_, b, rows.second, &Both::second);
      }
    } else {
      for (const auto a : pairing_.first) add(first_, a, rows.first, &Both::first);
      for (const auto b : pairing_.second) add(second_, b, rows.second, &Both::second);
    }
    for (const auto& [key, both] : all)
      add_change(what, names.at(key), both.first, both.second, paired, relative);
  }

  void add_change(const std::string& what, const std::string& where, Figures a, Figures b,
                  bool paired, bool relative) {
    std::vector<double> differences;
    if (paired) {
      for (std::size_t i = 0; i < a.size(); ++i)
        if (!std::isnan(a[i]) && !std::isnan(b[i])) differences.push_back(b[i] - a[i]);
    }
    for (auto* side : {&a, &b}) std::erase_if(*side, [](double v) { return std::isnan(v); });
    if (a.size() < 2 || b.size() < 2 || (paired && differences.size() < 2)) return;
    ++out_.compared;
    const double first = mean_of(a), second = mean_of(b);
    const auto error = [](const Figures& of) {
      return deviation_of(of) / std::sqrt(static_cast<double>(of.size()));
    };
    const double half = kNormal95 * (paired ? error(differences) : std::hypot(error(a), error(b)));
    const double difference = paired ? mean_of(differences) : second - first;
    // What storage rounds is no change.
    if (std::abs(difference) <= half || std::abs(difference) <= 1e-6 * std::abs(first)) return;
    Change change{what, where, first, second, {}, std::abs(difference)};
    change.difference = Estimate{difference, difference - half, difference + half};
    if (relative) change.size = first != 0 ? std::abs(difference / first) : 1;
    out_.changes.push_back(std::move(change));
  }

  const profile::Reader &first_, &second_;
  Pairing pairing_;
  Diff out_;
};

}  // namespace

Diff diff_profiles(const profile::Reader& first, const profile::Reader& second) {
  return Comparison(first, second).diff();
}

}  // namespace kvatlas::calibrate
