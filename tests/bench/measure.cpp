// SPDX-License-Identifier: Apache-2.0
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tests/bench/measure.cpp"
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

#include "kernels/math-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace kvatlas::kernels::HWY_NAMESPACE {

/// The sum of term(x) over `count` elements, in four sums.
template <class Term>
HWY_INLINE float sum_of(const float* values, std::int64_t count, Term term) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  auto sum0 = hn::Zero(d), sum1 = sum0, sum2 = sum0, sum3 = sum0;
  for (std::int64_t i = 0; i + 4 * lanes <= count; i += 4 * lanes) {
    sum0 = hn::Add(sum0, term(hn::LoadU(d, values + i)));
    sum1 = hn::Add(sum1, term(hn::LoadU(d, values + i + lanes)));
    sum2 = hn::Add(sum2, term(hn::LoadU(d, values + i + 2 * lanes)));
    sum3 = hn::Add(sum3, term(hn::LoadU(d, values + i + 3 * lanes)));
  }
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(sum0, sum1), hn::Add(sum2, sum3))));
}

float SumAll(const float* values, std::int64_t count) {
  return sum_of(values, count, [](auto x) HWY_ATTR { return x; });
}
float SumLog2(const float* values, std::int64_t count) {
  return sum_of(values, count,
                [](auto x) HWY_ATTR { return hn::Mul(x, log2(hn::DFromV<decltype(x)>(), x)); });
}

/// `steps` multiply-adds of each of twelve vectors in registers; returns how many operations that
/// were.
double MultiplyAdds(std::int64_t steps, float* to) {
  const hn::ScalableTag<float> d;
  const auto x = hn::Set(d, 0.999f), y = hn::Set(d, 0.001f);
  hn::Vec<decltype(d)> sums[12];
#pragma GCC unroll 12
  for (int i = 0; i < 12; ++i) sums[i] = hn::Set(d, static_cast<float>(i));
  for (std::int64_t step = 0; step < steps; ++step) {
#pragma GCC unroll 12
    for (int i = 0; i < 12; ++i) sums[i] = hn::MulAdd(sums[i], x, y);
  }
  for (int i = 1; i < 12; ++i) sums[0] = hn::Add(sums[0], sums[i]);
  *to = hn::GetLane(hn::SumOfLanes(d, sums[0]));
  return 2.0 * 12 * static_cast<double>(steps) * static_cast<double>(hn::Lanes(d));
}

}  // namespace kvatlas::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <map>

#include <benchmark/benchmark.h>

#include "base/parallel.hpp"
#include "tests/bench/measure.hpp"
#include "tests/support/random.hpp"

namespace kvatlas::kernels {
HWY_EXPORT(SumAll);
HWY_EXPORT(SumLog2);
HWY_EXPORT(MultiplyAdds);
}  // namespace kvatlas::kernels

namespace kvatlas::bench {
namespace {

double once(const Work& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

std::string text(const char* format, double value) {
  char buffer[64];
  std::snprintf(buffer, sizeof buffer, format, value);
  return buffer;
}

std::string rate_text(double rate, const std::string& unit) {
  return text(rate < 1e10 ? "%.2f G" : "%.1f G", rate / 1e9) + unit + "/s";
}

/// Seconds of the quickest run: a limit is what the machine can do when nothing disturbs it.
double least_seconds_of(const Work& work) {
  double least = once(work), total = 0;
  while (total < 0.5) {
    const double took = once(work);
    least = std::min(least, took);
    total += took;
  }
  return least;
}

constexpr std::int64_t kPiece = 1 << 16;  // floats of a task

/// How much a second all threads do in tasks that do `amount` each.
template <class Task>
double rate_of(std::int64_t tasks, double amount, Task task) {
  return static_cast<double>(tasks) * amount /
         least_seconds_of([&] { parallel_for(tasks, [&](std::int64_t i, int) { task(i); }); });
}

}  // namespace

double seconds_of(const Work& work) {
  std::vector<double> times = {once(work)};
  if (times[0] > 1) return times[0];
  times.clear();
  for (double total = 0; times.size() < 3 || (total < 0.25 && times.size() < 1000);)
    total += times.emplace_back(once(work));
  std::nth_element(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2),
                   times.end());
  return times[times.size() / 2];
}

Limit reading(std::int64_t bytes) {
  static std::map<std::int64_t, double> rates;
  double& rate = rates[bytes];
  if (rate == 0) {
    const std::int64_t pieces = std::max<std::int64_t>(1, bytes / 4 / kPiece);
    const std::vector<float> values(static_cast<std::size_t>(pieces * kPiece), 0.3f);
    rate = rate_of(pieces, 4 * kPiece, [&](std::int64_t piece) {
      using namespace kernels;
      benchmark::DoNotOptimize(
          HWY_DYNAMIC_DISPATCH(SumAll)(values.data() + piece * kPiece, kPiece));
    });
  }
  return {rate, "reading as many bytes"};
}

Limit copying(std::int64_t bytes) {
  static std::map<std::int64_t, double> rates;
  double& rate = rates[bytes];
  if (rate == 0) {
    const std::int64_t pieces = std::max<std::int64_t>(1, bytes / 8 / kPiece);
    const std::vector<float> from(static_cast<std::size_t>(pieces * kPiece), 0.3f);
    auto to = from;
    rate = rate_of(pieces, 8 * kPiece, [&](std::int64_t piece) {
      std::memcpy(to.data() + piece * kPiece, from.data() + piece * kPiece, 4 * kPiece);
    });
  }
  return {rate, "copying as many bytes"};
}

Limit logarithms() {
  static const double rate = [] {
    constexpr std::int64_t kInCache = 4096, kRepeats = 500;
    const std::vector<float> values(kInCache, 0.3f);
    return rate_of(8 * thread_count(), kRepeats * kInCache, [&](std::int64_t) {
      using namespace kernels;
      for (std::int64_t i = 0; i < kRepeats; ++i)
        benchmark::DoNotOptimize(HWY_DYNAMIC_DISPATCH(SumLog2)(values.data(), kInCache));
    });
  }();
  return {rate, "the logarithm alone"};
}

Limit multiply_adds() {
  static const double rate = [] {
    using namespace kernels;
    constexpr std::int64_t kSteps = 200000;
    float sum = 0;
    const double operations = HWY_DYNAMIC_DISPATCH(MultiplyAdds)(kSteps, &sum);
    return rate_of(8 * thread_count(), operations, [&](std::int64_t) {
      float own = 0;
      HWY_DYNAMIC_DISPATCH(MultiplyAdds)(kSteps, &own);
      benchmark::DoNotOptimize(own);
    });
  }();
  return {rate, "multiply-adds in registers"};
}

void add(const std::string& name, const std::function<Row()>& make) {
  // Google Benchmark calls a row several times; the last one's data are kept until the next row.
  static std::string made;
  static Row row;
  static std::string beside;
  const auto compare = [] {
    beside.clear();
    for (const Peer& peer : row.peers) {
      if (!peer.work) continue;
      double theirs = 0, ours = 0;
      for (int turn = 0; turn < 3 && theirs < 1; ++turn) {
        theirs += seconds_of(peer.work);
        ours += seconds_of(row.kernel);
      }
      beside += "; " + text("%.3f", ours / theirs) + " of the time of " + peer.name;
      if (row.most_of_peer > 0 && &peer == &row.peers.front())
        beside += text(" (at most %.1f: ", row.most_of_peer) +
                  (ours <= row.most_of_peer * theirs ? "met)" : "MISSED)");
    }
  };
  const auto measure = [name, make, compare](benchmark::State& state) {
    if (made != name) {
      row = {};
      row = make();
      compare();
      made = name;
    }
    const double seconds = once([&] {
      for (auto _ : state) row.kernel();
    });
    const double rate = row.amount * static_cast<double>(state.iterations()) / seconds;
    state.counters["of_limit"] = rate / row.limit.rate;
    const auto share = [&](double amount, const std::string& unit, const Limit& limit) {
      const double per_second = amount * static_cast<double>(state.iterations()) / seconds;
      return rate_text(per_second, unit) + text(", %.0f", 100 * per_second / limit.rate) +
             " % of " + limit.name + " (" + rate_text(limit.rate, unit) + ")";
    };
    std::string label = share(row.amount, row.unit, row.limit);
    if (row.least_of_limit > 0)
      label += text(" (at least %.0f %%: ", 100 * row.least_of_limit) +
               (rate >= row.least_of_limit * row.limit.rate ? "met)" : "MISSED)");
    if (row.operations > 0) label += "; " + share(row.operations, "FLOP", multiply_adds());
    state.SetLabel(label + beside);
  };
  benchmark::RegisterBenchmark(name.c_str(), measure)->UseRealTime()->Unit(benchmark::kMillisecond);
}

Work fastest(const std::vector<Work>& works) {
  Work best;
  double least = 0;
  for (const Work& work : works) {
    const double seconds = seconds_of(work);
    if (best && seconds >= least) continue;
    best = work;
    least = seconds;
  }
  return best;
}

Array<float> normals(std::int64_t count) {
  return std::make_shared<std::vector<float>>(testing_support::Random(1).normals(count));
}

}  // namespace kvatlas::bench
#endif
