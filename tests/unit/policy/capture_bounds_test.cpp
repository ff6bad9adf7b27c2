// SPDX-License-Identifier: Apache-2.0
// A profile is taken for policies, whose table of settings stands above it: what the capture takes
// and refuses is what the table says of the same setting.
#include <functional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "analyzer/profile/statistics.hpp"
#include "calibrate/policy/policy_settings.hpp"
#include "tests/support/error_of.hpp"

namespace kvatlas::calibrate {
namespace {

using profile::CaptureSettings;
using testing::HasSubstr;
using testing_support::error_of;

struct Bound {
  const char *option, *part, *key;
  std::function<void(CaptureSettings&, std::int64_t)> set;
};

const Bound kBounds[] = {
    {"--initial", "simlayerkv", "initial",
     [](CaptureSettings& s, std::int64_t v) {
       s.proximities = {{v, 64}};
     }},
    {"--recent", "simlayerkv", "recent",
     [](CaptureSettings& s, std::int64_t v) {
       s.proximities = {{4, v}};
     }},
    {"--initial", "pod", "initial",
     [](CaptureSettings& s, std::int64_t v) {
       s.proximities = {{v, 64}};
     }},
    {"--recent", "pod", "recent",
     [](CaptureSettings& s, std::int64_t v) {
       s.proximities = {{4, v}};
     }},
    {"--last-rows", "simlayerkv", "w_last",
     [](CaptureSettings& s, std::int64_t v) { s.mass_rows = v; }},
    {"--windows", "dynamickv", "window",
     [](CaptureSettings& s, std::int64_t v) {
       s.window_kinds = {{v, 7}};
       s.budgets = {v + 2};
     }},
    {"--kernels", "dynamickv", "kernel",
     [](CaptureSettings& s, std::int64_t v) {
       s.window_kinds = {{16, v}};
     }},
    {"--budgets", "dynamickv", "budget",
     [](CaptureSettings& s, std::int64_t v) {
       s.window_kinds = {{1, 1}};
       s.budgets = {v};
     }},
    {"--budgets", "h2o", "budget",
     [](CaptureSettings& s, std::int64_t v) {
       s.window_kinds = {{1, 1}};
       s.budgets = {v};
     }},
    {"--sink", "lagkv", "sink", [](CaptureSettings& s, std::int64_t v) { s.sink = v; }},
    {"--lags", "lagkv", "lag", [](CaptureSettings& s, std::int64_t v) { s.lags = {v}; }},
};

TEST(CaptureBounds, AreThoseOfThePolicies) {
  for (const auto& [option, part, key, set] : kBounds) {
    const auto refusal = [&](std::int64_t value) {
      CaptureSettings settings;
      set(settings, value);
      return error_of([&] { settings.check(model::Config{}); });
    };
    const auto range = std::get<WholeRange>(setting_named(part, key).allowed);
    EXPECT_EQ(refusal(range.least), "") << option;
    EXPECT_EQ(refusal(range.most), "") << option;
    EXPECT_THAT(refusal(range.least - 1), HasSubstr(option));
    EXPECT_THAT(refusal(range.most + 1), HasSubstr(option));
    if (range.odd) {
      EXPECT_THAT(refusal(range.least + 1), HasSubstr("must be odd"));
    }
  }
}

/// The grid that a profile is taken for by default holds the defaults of the policies.
TEST(CaptureBounds, DefaultsAreInTheGrid) {
  const CaptureSettings settings;
  EXPECT_THAT(settings.proximities, testing::IsSupersetOf({SimLayerKv{}.keep, Pod{}.proximal}));
  const WindowBudget select;
  EXPECT_EQ(settings.window_kinds[0].window, select.window);
  EXPECT_EQ(settings.window_kinds[0].kernel, select.kernel);
  EXPECT_EQ(settings.window_kinds[0].pooling, select.pooling);
  EXPECT_EQ(settings.mass_rows, SimLayerKv{}.w_last);
  EXPECT_THAT(settings.budgets, testing::Contains(select.budget));
  EXPECT_EQ(settings.sink, LagKv{}.sink);
  EXPECT_THAT(settings.lags, testing::Contains(LagKv{}.lag));
  EXPECT_THAT(settings.ratios, testing::Contains(LagKv{}.ratio));
}

}  // namespace
}  // namespace kvatlas::calibrate
