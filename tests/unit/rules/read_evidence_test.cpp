// SPDX-License-Identifier: Apache-2.0
// The one reader of a profile's evidence: which samples it takes, and what it says of those
// settings that were not captured. The numbers themselves are held by the tests of methods and
// screens.
#include "calibrate/rules/read_evidence.hpp"

#include <gmock/gmock.h>

#include "tests/support/error_of.hpp"
#include "tests/support/model_bytes.hpp"
#include "tests/support/small_profile.hpp"

namespace kvatlas::calibrate {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing_support::refusal;

class ReadEvidence : public testing::Test {
 protected:
  profile::Reader opened(const testing_profile::Shape& shape) {
    const auto path = folder_.path() / "p.h5";
    testing_profile::write_profile(path, shape);
    return profile::Reader(path);
  }

 private:
  testing_support::TemporaryFolder folder_;
};

SimLayerKv lazy_at(Proximity keep) {
  SimLayerKv policy;
  policy.keep = keep;
  return policy;
}

TEST_F(ReadEvidence, TakesTheSamplesAskedFor) {
  const auto profile = opened({.samples = 3, .short_samples = 2});
  const std::vector<std::size_t> all = {0, 1, 2, 3, 4}, two = {0, 2};
  EXPECT_EQ(longer_than(profile, all, 68), (std::vector<std::size_t>{0, 1, 2}));
  const auto masses = read_masses(profile, two, lazy_at({4, 64}));
  EXPECT_EQ(masses.positions, two);
  ASSERT_EQ(masses.layers.size(), 2u);
  EXPECT_NEAR(masses.layers[1][1], 0.902, 1e-6);
  EXPECT_EQ(read_steps(profile, two, {4, 64}).at(0).size(), 2u);
  EXPECT_EQ(read_similarity(profile, two).positions, two);
  const auto sums = read_gate_sums(profile, 2, {4, 64});
  EXPECT_EQ(sums.proximal.rows(), sums.layers * sums.heads);
  EXPECT_EQ(sums.distant.cols(), sums.view().rows);
  const auto counts = read_counts(profile, two, {.budget = 64});
  EXPECT_EQ(counts.positions, two);
  EXPECT_EQ(counts.before.front(), testing_profile::kTokens - 16);
}

TEST_F(ReadEvidence, ListsTheSettingsThatThereAre) {
  const auto profile = opened({.samples = 2});
  EXPECT_THAT(refusal([&] {
                read_masses(profile, {}, lazy_at({4, 65}));
              }),
              AllOf(HasSubstr("no masses for initial=4,recent=65, but for "), HasSubstr("112"),
                    HasSubstr("'kvatlas profile --initial 4 --recent 65'")));
  EXPECT_THAT(refusal([&] { read_counts(profile, {}, {.window = 8, .budget = 64}); }),
              HasSubstr("--windows 8 --kernels 7 --poolings avg'"));
  EXPECT_THAT(
      refusal([&] { read_counts(profile, {}, {.budget = 65}); }),
      HasSubstr("no counts for a budget of 65, but for budget=64; budget=32 (the nearest first)"));
}

TEST_F(ReadEvidence, SaysHowWhatIsMissingIsTaken) {
  const auto profile = opened({.samples = 2, .lazy = false, .js = false, .scores = false});
  EXPECT_THAT(refusal([&] { read_masses(profile, {}, {}); }), HasSubstr("--capture lazy"));
  EXPECT_THAT(refusal([&] { read_gate_sums(profile, 0, {4, 64}); }), HasSubstr("--capture lazy"));
  EXPECT_THAT(refusal([&] { read_similarity(profile, {}); }), HasSubstr("--capture js"));
  EXPECT_THAT(refusal([&] { read_counts(profile, {}, {}); }), HasSubstr("--capture scores"));
  EXPECT_THAT(read_steps(profile, {0}, {4, 64}), IsEmpty());
}

}  // namespace
}  // namespace kvatlas::calibrate
