// SPDX-License-Identifier: Apache-2.0
// Settings that nobody gave. The small profile has the windows 4 + 64 and 16 + 112, the budgets 32
// and 64, and the lags 32 and 64 at 1/2 and 1/4, of prompts of 300 tokens.
#include "calibrate/rules/fitting.hpp"

#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "tests/support/model_bytes.hpp"
#include "tests/support/small_profile.hpp"

namespace kvatlas::calibrate {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing_profile::Shape;

class Fitting : public testing::Test {
 protected:
  Evidence evidence(const Shape& shape = {}) {
    const auto path = folder_.path() / (std::to_string(readers_.size()) + ".h5");
    testing_profile::write_profile(path, shape);
    readers_.push_back(std::make_unique<profile::Reader>(path));
    return {*readers_.back(), {}};
  }
  /// Three of four prompts have 60 tokens.
  Evidence of_short_prompts() { return evidence({.samples = 3, .short_samples = 9}); }

 private:
  testing_support::TemporaryFolder folder_;
  std::vector<std::unique_ptr<profile::Reader>> readers_;
};

void expect_window(const Fitted<Proximity>& fitted, std::int64_t initial, std::int64_t recent) {
  EXPECT_EQ(fitted.settings.initial, initial);
  EXPECT_EQ(fitted.settings.recent, recent);
}

TEST_F(Fitting, TheUsualLengthIsThatOfThreePromptsOfFour) {
  EXPECT_EQ(usual_length(evidence()), 300);
  EXPECT_EQ(usual_length(evidence({.samples = 9, .short_samples = 3})), 300);
  EXPECT_EQ(usual_length(evidence({.samples = 8, .short_samples = 4})), 60);
}

TEST_F(Fitting, WindowsAreTheProfilesThatLeaveHalfToCut) {
  const Evidence all = evidence();
  const auto lazy = fitting_window(all, {4, 1024}, {}, {});
  expect_window(lazy, 4, 64);
  EXPECT_THAT(lazy.why, AllOf(HasSubstr("initial 4 and recent 64 are taken in place of initial 4 "
                                        "and recent 1024: the largest"),
                              HasSubstr("300 tokens")));
  expect_window(fitting_window(all, {16, 4080}, {}, {}), 16, 112);
  // Initial tokens that the profile lacks: the nearest that it has.
  expect_window(fitting_window(all, {12, 4080}, {}, {}), 16, 112);
  // The published window itself needs no word.
  EXPECT_THAT(fitting_window(all, {4, 64}, {}, {}).why, IsEmpty());
  const auto least = fitting_window(of_short_prompts(), {16, 4080}, {}, {});
  expect_window(least, 16, 112);
  EXPECT_THAT(least.why, HasSubstr("the smallest of the profile's windows"));
}

TEST_F(Fitting, AWindowThatWasGivenStays) {
  const Evidence all = evidence();
  expect_window(fitting_window(all, {4, 1024}, 16, {}), 16, 112);
  expect_window(fitting_window(all, {4, 1024}, {}, 112), 16, 112);
  expect_window(fitting_window(all, {4, 1024}, 4, 1024), 4, 1024);
  // What the profile lacks is left to be refused by name.
  const auto lacking = fitting_window(all, {4, 1024}, {}, 99);
  expect_window(lacking, 4, 99);
  EXPECT_THAT(lacking.why, IsEmpty());
}

TEST_F(Fitting, BudgetsAreThoseThatLeaveSomethingOut) {
  const Evidence all = evidence();
  EXPECT_THAT(fitting_budgets(all).settings, ElementsAre(32, 64));
  EXPECT_THAT(fitting_budgets(all).why, IsEmpty());
  EXPECT_THAT(fitting_budgets(of_short_prompts()).settings, ElementsAre(32, 64));
  const auto of_short = fitting_budgets(evidence({.samples = 0, .short_samples = 6}));
  EXPECT_THAT(of_short.settings, ElementsAre(32));
  EXPECT_THAT(of_short.why, HasSubstr("keep every prompt whole (60 tokens at most)"));
  EXPECT_EQ(fitting_budget(all, 64).settings, 64);
  EXPECT_EQ(fitting_budget(all, 128).settings, 64);
  EXPECT_EQ(fitting_budget(all, 16).settings, 32);
  EXPECT_THAT(fitting_budget(all, 128).why, HasSubstr("budget 64 is taken in place of 128"));
}

TEST_F(Fitting, ScoresAreOfAKindThatTheProfileHas) {
  const Evidence all = evidence();
  EXPECT_THAT(fitting_scores(all, {}).why, IsEmpty());
  WindowBudget other;
  other.window = 32;
  const auto fitted = fitting_scores(all, other);
  EXPECT_EQ(fitted.settings.window, 16);
  EXPECT_EQ(fitted.settings.budget, other.budget);
  EXPECT_THAT(fitted.why, HasSubstr("window 16"));
}

TEST_F(Fitting, LagsAreThoseThatCutThePrompts) {
  const Evidence all = evidence();
  const auto lags = fitting_lags(all, 16, {128, 512, 1024});
  EXPECT_THAT(lags.settings, ElementsAre(32, 64));
  EXPECT_THAT(lags.why, HasSubstr("lags 32, 64 are taken in place of 128, 512, 1024"));
  EXPECT_THAT(fitting_lags(all, 16, {64}).settings, ElementsAre(64));
  EXPECT_THAT(fitting_lags(all, 16, {128}).settings, ElementsAre(64));
  EXPECT_THAT(fitting_lags(of_short_prompts(), 16, {128, 512}).settings, ElementsAre(32));
  EXPECT_EQ(fitting_sink(all, 16).settings, 16);
  EXPECT_EQ(fitting_sink(all, 4).settings, 16);
  EXPECT_THAT(fitting_ratios(all, {"1/2", "1/6"}).settings, ElementsAre("1/2", "1/4"));
  EXPECT_THAT(fitting_ratios(all, {"1/4"}).settings, ElementsAre("1/4"));
  // Without selections in the profile, the published ones are tried as far as prompts are long
  // enough.
  const Evidence bare = evidence({.kept = false});
  EXPECT_EQ(fitting_sink(bare, 4).settings, 4);
}

}  // namespace
}  // namespace kvatlas::calibrate
