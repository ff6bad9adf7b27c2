// SPDX-License-Identifier: Apache-2.0
// How long prompts come out, and at what cost.
#include <algorithm>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "data/fit_length.hpp"
#include "data/tasks.hpp"
#include "tests/support/error_of.hpp"
#include "tests/unit/data/token_counters.hpp"

namespace kvatlas::data {
namespace {

using testing::HasSubstr;
using testing_support::error_of;

const char* const kTasks[] = {"needle",
                              "needle:keys=4",
                              "needle:values=4,haystack=repeat",
                              "needle:queries=4",
                              "needle:turns=8",
                              "passkey",
                              "passkey:digits=64,haystack=prose",
                              "vt",
                              "vt:chains=3,hops=2,haystack=prose",
                              "cwe",
                              "cwe:words=3",
                              "fwe",
                              "running-total",
                              "list-edit:haystack=prose",
                              "state-tracking:steps=16",
                              "tools:functions=1,arguments=1,notes=1",
                              "tools:functions=2,arguments=1,turns=2,notes=1,haystack=repeat",
                              "prose",
                              "code"};

struct Counter {
  const char* name;
  std::int64_t (*count)(std::string_view);
};

class Lengths : public testing::TestWithParam<Counter> {};

TEST_P(Lengths, AtMostWhatIsAskedForAndNotMuchLess) {
  for (const char* task : kTasks)
    for (const std::int64_t length : {1500, 2048, 4095, 4096, 10'000})
      for (const std::uint64_t seed : {0, 1, 2}) {
        const double depth = static_cast<double>(seed) / 2;
        const Prompt prompt =
            make_prompt({task, length, depth, seed}, of_prompts(GetParam().count));
        const std::int64_t tokens = GetParam().count(prompt.as_text());
        EXPECT_LE(tokens, length) << prompt.id;
        EXPECT_GE(tokens, length - std::max<std::int64_t>(24, length * 3 / 100)) << prompt.id;
      }
}

TEST_P(Lengths, FewCountsAreNeeded) {
  for (const char* task : kTasks)
    for (const std::int64_t length : {2048, 131'072}) {
      int calls = 0;
      const Prompt prompt = make_prompt({task, length}, [&](const Prompt& counted) {
        ++calls;
        return GetParam().count(counted.as_text());
      });
      EXPECT_LE(calls, 6) << prompt.id;
      const std::int64_t tokens = GetParam().count(prompt.as_text());
      EXPECT_LE(tokens, length) << prompt.id;
      EXPECT_GE(tokens, length * 97 / 100) << prompt.id;
    }
}

TEST_P(Lengths, TooShortSaysTheLeastLengthAndThatOneWorks) {
  for (const char* task : kTasks) {
    const std::string error = error_of([&] {
      make_prompt({task, 1}, of_prompts(GetParam().count));
    });
    if (error.empty()) {
      EXPECT_THAT(task, testing::AnyOf("prose", "code"));
      continue;
    }
    const std::string words = "it needs ";
    ASSERT_THAT(error, HasSubstr(words));
    const std::int64_t least = std::stoll(error.substr(error.find(words) + words.size()));
    const auto count = of_prompts(GetParam().count);
    EXPECT_LE(count(make_prompt({task, least}, count)), least);
    EXPECT_THAT(error_of([&] { make_prompt({task, least - 1}, count); }), HasSubstr("too short"));
  }
}

INSTANTIATE_TEST_SUITE_P(, Lengths,
                         testing::Values(Counter{"words", count_words},
                                         Counter{"quads", count_quads},
                                         Counter{"bytes", count_bytes}),
                         [](const auto& tested) { return std::string(tested.param.name); });

Prompt letters(std::int64_t pieces) {
  Prompt prompt;
  prompt.text = std::string(static_cast<std::size_t>(pieces), 'a');
  return prompt;
}

/// fit_length's number of pieces, with counters that are not as even as words.
std::int64_t fitted(std::int64_t length, const CountTokens& count) {
  return count_bytes(fit_length(length, 1, count, letters).text);
}

TEST(FitLength, FindsTheMostOfPiecesThatAreUneven) {
  // Nothing but the most pieces comes near enough: each next one costs more.
  const auto squares = [](const Prompt& prompt) {
    const auto& text = prompt.text;
    return static_cast<std::int64_t>(text.size() * text.size());
  };
  EXPECT_EQ(fitted(1000, squares), 31);
  EXPECT_EQ(fitted(1, squares), 1);
  // A step in the middle of an even run.
  const auto step = [](const Prompt& prompt) {
    const auto& text = prompt.text;
    return static_cast<std::int64_t>(text.size() + (text.size() > 600 ? 5000 : 0));
  };
  EXPECT_EQ(fitted(2000, step), 600);
}

TEST(FitLength, EndsWhereTokensDoNotGrow) {
  int calls = 0;
  const auto none = [&](const Prompt&) {
    ++calls;
    return std::int64_t{0};
  };
  EXPECT_LE(fitted(1'000'000, none), 5'000'000);
  EXPECT_LE(calls, 50);
}

}  // namespace
}  // namespace kvatlas::data
