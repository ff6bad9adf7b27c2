// SPDX-License-Identifier: Apache-2.0
#include <Eigen/Core>
#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>

#include "analyzer/profile/checked_arrays.hpp"
#include "analyzer/profile/statistics.hpp"
#include "base/error.hpp"
#include "calibrate/inspect/diff.hpp"

namespace kvatlas::calibrate {
namespace {

namespace name = profile::name;

constexpr double kNormal95 = 1.96;

/// The samples of both that are compared.
struct Pairing {
  std::vector<std::size_t> first, second;  // all samples; with pairs only those that have a partner
  std::size_t pairs = 0;                   // samples of equal tokens; 0 if they are too few
};

Pairing pair_samples(const profile::Reader& first, const profile::Reader& second) {
  Pairing all, paired;
  std::map<std::vector<std::int32_t>, std::size_t> known;
  for (std::size_t i = 0; i < first.samples().size(); ++i) {
    known.emplace(first.tokens(i), i);
    all.first.push_back(i);
  }
  for (std::size_t i = 0; i < second.samples().size(); ++i) {
    all.second.push_back(i);
    if (const auto same = known.find(second.tokens(i)); same != known.end()) {
      paired.first.push_back(same->second);
      paired.second.push_back(i);
    }
  }
  paired.pairs = paired.first.size();
  return paired.pairs >= 2 ? paired : all;
}

/// An array, and the figures that its elements make: each is the mean over some of them.
struct Figures {
  const char *array, *what;
  std::vector<std::int64_t> sizes;  // of the array in a sample, for one setting
  std::vector<std::string> names;   // what each figure is of; empty for figures that do not count
  struct {
    std::int64_t first = 0;  // where the first figure begins
    std::int64_t apart = 1;  // from the beginning of a figure to that of the next
    std::int64_t count = 1;  // elements of a figure
    std::int64_t step = 1;   // from one of them to the next
  } elements = {};
  bool relative = false;  // whether changes are sorted by their share of the first value
};

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
    if (std::min(first_.samples().size(), second_.samples().size()) < 2)
      fail(ErrorCode::usage, "the profiles have ", first_.samples().size(), " and ",
           second_.samples().size(),
           " samples: how much a figure varies is seen in two samples of each at least");
    say_pairing();
    const std::int64_t L = a.n_layers, H = a.n_heads, K = a.n_kv_heads;
    std::vector<std::string> layers, pairs, kv_heads;
    for (std::int64_t l = 0; l < L; ++l) {
      layers.push_back(str("layer ", l));
      for (std::int64_t other = 0; other < L; ++other)
        pairs.push_back(other < l ? str("layers ", other, " and ", l) : "");
      for (std::int64_t head = 0; head < K; ++head)
        kv_heads.push_back(str("layer ", l, ", KV head ", head));
    }
    along_axis("proximity",
               {name::kDecodeMass, "layer mass", {L, H}, layers, {.apart = H, .count = H}});
    along_axis("selection",
               {name::kKeptMass, "attention kept", {L, K}, layers, {.apart = K, .count = K}});
    const char* divergence = "divergence of layers, mean over heads";
    alone({name::kDivergence, divergence, {H, L, L}, pairs, {.count = H, .step = L * L}});
    for (const auto& [array, what] : {std::pair(name::kKeyNorm, "mean norm of keys"),
                                      std::pair(name::kValueNorm, "mean norm of values")})
      alone({array, what, {L, K, 4}, kv_heads, {.first = 1, .apart = 4}, true});
    std::stable_sort(out_.changes.begin(), out_.changes.end(),
                     [](const Change& x, const Change& y) { return x.size > y.size; });
    if (out_.compared == 0) fail(ErrorCode::usage, "the two profiles have no statistics in common");
    return std::move(out_);
  }

 private:
  void say_pairing() {
    const std::size_t a = first_.samples().size(), b = second_.samples().size();
    if (pairing_.pairs > 0)
      out_.notes.push_back(str(pairing_.pairs, " samples have the same tokens in both (of ", a,
                               " and ", b, "), and are compared one by one"));
    else
      out_.notes.push_back(
          str("the samples (", a, " and ", b, ") have other tokens: their means are compared"));
  }

  /// Arrays with a row for each setting of an axis: rows of the same label are compared.
  void along_axis(const char* axis, const Figures& figures) {
    if (!both_have(figures)) return;
    const auto& of_first = profile::axis_of(first_.header(), axis).labels;
    const auto& of_second = profile::axis_of(second_.header(), axis).labels;
    for (std::size_t i = 0; i < of_first.size(); ++i) {
      const auto same = std::find(of_second.begin(), of_second.end(), of_first[i]);
      if (same == of_second.end()) continue;
      compare(figures, str(figures.what, ", ", printable(of_first[i])),
              {static_cast<std::int64_t>(i), same - of_second.begin()});
    }
  }
  void alone(const Figures& figures) {
    if (both_have(figures)) compare(figures, figures.what, {-1, -1});
  }
  bool both_have(const Figures& figures) {
    const bool a = first_.has(figures.array), b = second_.has(figures.array);
    if (a != b) out_.notes.push_back(str(figures.what, ": only one of the profiles has it"));
    return a && b;
  }

  /// [sample, figure]; NaN where it was not captured.
  static Eigen::ArrayXXd read(const profile::Reader& profile,
                              const std::vector<std::size_t>& samples, const Figures& figures,
                              std::int64_t row) {
    const auto& sizes = figures.sizes;
    const std::vector<std::int64_t> leading(sizes.begin(), sizes.end() - 1);
    const auto expected =
        std::accumulate(sizes.begin(), sizes.end(), std::int64_t{1}, std::multiplies());
    const auto& [first, apart, count, step] = figures.elements;
    Eigen::ArrayXXd out(std::ssize(samples), std::ssize(figures.names));
    for (std::int64_t s = 0; s < out.rows(); ++s) {
      const auto values =
          row < 0 ? profile::floats_of(profile, samples[s], figures.array, {}, leading)
                  : profile::floats_of(profile, samples[s], figures.array, {row}, leading);
      if (std::ssize(values) != expected)
        fail(ErrorCode::unreadable, figures.array, " has ", values.size(),
             " values a sample, expected ", expected);
      using Strides = Eigen::Stride<Eigen::Dynamic, Eigen::Dynamic>;
      const Eigen::Map<const Eigen::ArrayXXf, 0, Strides> elements(
          values.data() + first, out.cols(), count, Strides(step, apart));
      out.row(s) = elements.cast<double>().rowwise().mean().transpose();
    }
    return out;
  }

  void compare(const Figures& figures, const std::string& what,
               const std::pair<std::int64_t, std::int64_t>& rows) {
    const auto a = read(first_, pairing_.first, figures, rows.first);
    const auto b = read(second_, pairing_.second, figures, rows.second);
    for (std::int64_t f = 0; f < a.cols(); ++f)
      if (!figures.names[f].empty())
        add_change(what, figures.names[f], a.col(f), b.col(f), figures.relative);
  }

  /// The values that are not NaN.
  static std::vector<double> known(const Eigen::ArrayXd& values) {
    std::vector<double> out(values.begin(), values.end());
    std::erase_if(out, [](double value) { return std::isnan(value); });
    return out;
  }

  void add_change(const std::string& what, const std::string& where, const Eigen::ArrayXd& of_first,
                  const Eigen::ArrayXd& of_second, bool relative) {
    const bool paired = pairing_.pairs > 0;
    const auto a = known(of_first), b = known(of_second);
    const auto differences = paired ? known(of_second - of_first) : b;
    if (a.size() < 2 || b.size() < 2 || differences.size() < 2) return;
    ++out_.compared;
    const double first = mean_of(a), second = mean_of(b);
    const auto error = [](const std::vector<double>& of) {
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
