// SPDX-License-Identifier: Apache-2.0
// Which samples calibration goes by, and when they are too few or too poor for it.
#include "calibrate/rules/evidence.hpp"

#include <gmock/gmock.h>

#include "tests/support/error_of.hpp"
#include "tests/support/model_bytes.hpp"
#include "tests/support/small_profile.hpp"

namespace kvatlas::calibrate {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing_support::refusal;

struct Prompt {
  std::int64_t n_tokens = 10;
  std::string group = {};
};

class EvidenceTest : public testing::Test {
 protected:
  /// A profile of these prompts, without statistics.
  profile::Reader opened(const std::vector<Prompt>& prompts) {
    const auto path = folder_.path() / (std::to_string(++profiles_) + ".h5");
    const auto settings =
        testing_profile::settings_of({.lazy = false, .js = false, .scores = false, .kept = false});
    profile::Writer writer(
        path, testing_support::header_of({2, 2, 1}, settings, std::ssize(prompts)), {});
    for (std::size_t i = 0; i < prompts.size(); ++i) {
      profile::Sample sample;
      sample.index = static_cast<std::int64_t>(i);
      sample.id = "sample " + std::to_string(i);
      sample.task = "needle";
      sample.group = prompts[i].group;
      sample.tokens.assign(static_cast<std::size_t>(prompts[i].n_tokens), 1);
      writer.add(sample);
    }
    writer.finish();
    return profile::Reader(path);
  }

 private:
  testing_support::TemporaryFolder folder_;
  int profiles_ = 0;
};

TEST_F(EvidenceTest, ReportsTheLengthsOfPromptsOrTheirQuartiles) {
  const auto six = opened({{60}, {10}, {50}, {20}, {40}, {30}, {10}});
  EXPECT_THAT(Evidence(six, {}).lengths(), ElementsAre(10, 20, 30, 40, 50, 60));
  EXPECT_THAT(Evidence(six, {.lengths = {512, 128}}).lengths(), ElementsAre(128, 512));
  const auto ten = opened({{10}, {20}, {30}, {40}, {50}, {60}, {70}, {80}, {90}, {100}});
  EXPECT_THAT(Evidence(ten, {}).lengths(), ElementsAre(30, 60, 80, 100));
  const auto seven = opened({{10}, {20}, {30}, {40}, {50}, {60}, {70}});
  EXPECT_THAT(Evidence(seven, {}).lengths(), ElementsAre(20, 40, 60, 70));
}

TEST_F(EvidenceTest, WhatIsApartSharesNoTextWithWhatIsHeldOut) {
  const auto profile = opened({{10, "a"}, {10, "a"}, {10, "b"}, {10, ""}, {10, ""}});
  const Evidence evidence(profile, {.seed = 7});
  EXPECT_THAT(evidence.apart_from({0, 3}, evidence.positions()), ElementsAre(2, 4));
  EXPECT_THAT(evidence.apart_from({}, {1, 2}), ElementsAre(1, 2));
  EXPECT_EQ(evidence.count(evidence.positions()).texts, 4u);
  EXPECT_THAT(evidence.answered(evidence.positions()), IsEmpty());
  EXPECT_EQ(provenance(evidence).seed, 7u);
}

TEST_F(EvidenceTest, RefusesAProfileWithoutSamples) {
  const auto none = opened({});
  EXPECT_THAT(refusal([&] { Evidence(none, {}); }), HasSubstr("the profile has no samples"));
}

TEST(SampleCount, OneIsNotSeveral) {
  const auto text = [](std::size_t samples, std::size_t texts) {
    return SampleCount{samples, texts}.text();
  };
  EXPECT_EQ(text(1, 1), "1 sample");
  EXPECT_EQ(text(2, 1), "2 samples of 1 text");
  EXPECT_EQ(text(20, 10), "20 samples of 10 texts");
}

TEST(RequireSamples, AsManyTextsAsAChoiceNeeds) {
  const auto refused = [](const SampleCount& count, bool force) {
    return refusal([&] {
      Calibrated out;
      require_samples(count, "with answers", force, out);
    });
  };
  Calibrated enough;
  require_samples({5, 5}, "with answers", false, enough);
  EXPECT_THAT(enough.notes, IsEmpty());
  EXPECT_FALSE(enough.section.contains("forced"));
  EXPECT_THAT(refused({4, 4}, false), AllOf(HasSubstr("4 samples with answers"), HasSubstr("5 at"),
                                            HasSubstr("--force"), Not(HasSubstr("--seeds"))));
  EXPECT_THAT(refused({1, 1}, false), HasSubstr("1 sample with answers"));
  EXPECT_THAT(refused({8, 2}, false), AllOf(HasSubstr("--force"), HasSubstr("--seeds")));
  EXPECT_THAT(refused({0, 0}, true), Not(HasSubstr("--force")));
  Calibrated forced;
  require_samples({1, 1}, "with answers", true, forced);
  EXPECT_EQ(forced.section["forced"], true);
  EXPECT_THAT(forced.notes, ElementsAre("forced on 1 sample with answers, where 5 texts are the "
                                        "least"));
}

TEST(RequireScore, HalfOfWhatCanBeHad) {
  Calibrated out;
  require_score(0.5, false, out);
  EXPECT_THAT(out.notes, IsEmpty());
  EXPECT_THAT(refusal([&] { require_score(0.4996, false, out); }), HasSubstr("scores 0.500 on"));
  require_score(0.25, true, out);
  EXPECT_EQ(out.section["forced"], true);
  EXPECT_THAT(out.notes,
              ElementsAre("forced although the full cache scores 0.250 on these samples"));
}

TEST(CacheShapeOfAHeader, RefusesWhatNoModelHas) {
  const auto good = testing_support::header_of({2, 4, 2}, {}, 1);
  EXPECT_EQ(cache_shape(good).kv_heads, 2);
  const auto refused = [&](auto&& spoil) {
    auto header = good;
    spoil(header);
    return testing_support::error_of([&] { cache_shape(header); });
  };
  EXPECT_THAT(refused([](auto& header) { header.n_layers = 0; }), HasSubstr("0 layers"));
  EXPECT_THAT(refused([](auto& header) { header.n_heads = 0; }), HasSubstr("0 heads"));
  EXPECT_THAT(refused([](auto& header) { header.n_heads = 5; }), HasSubstr("5 heads"));
  EXPECT_THAT(refused([](auto& header) { header.n_kv_heads = 0; }), HasSubstr("0 KV heads"));
  EXPECT_THAT(refused([](auto& header) { header.window = {1}; }), HasSubstr("1 layers"));
  auto one = testing_support::header_of({1, 1, 1}, {}, 1);
  one.window.clear();
  EXPECT_EQ(cache_shape(one).layers, 1);
}

}  // namespace
}  // namespace kvatlas::calibrate
