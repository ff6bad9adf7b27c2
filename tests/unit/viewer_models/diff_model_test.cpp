// SPDX-License-Identifier: Apache-2.0
#include "viewer/models/diff_model.hpp"

#include <gmock/gmock.h>

#include "tests/unit/viewer_models/open_profile.hpp"
#include "viewer/models/model_axes.hpp"

namespace kvatlas::viewer {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

ProfileNumbers numbers(const std::string& name, std::vector<double> mass) {
  ProfileNumbers out;
  out.name = name;
  out.layers = static_cast<std::int64_t>(mass.size());
  out.lengths = {100, 200};
  out.mass = std::move(mass);
  return out;
}

TEST(DiffModel, LargestChangesFirst) {
  const auto view = diff_view(numbers("A", {0.1, 0.5, 0.9}), numbers("B", {0.1, 0.2, 1.0}),
                              {DiffForm::difference});
  ASSERT_EQ(view.changes.size(), 3u);
  EXPECT_EQ(view.changes[0].layer, 1);
  EXPECT_EQ(view.changes[1].layer, 2);
  ASSERT_EQ(view.masses.bars.size(), 1u);
  EXPECT_NEAR(view.masses.bars[0].bars[1].height, -0.3, 1e-12);
  // The same range both ways.
  ASSERT_TRUE(view.masses.y.range);
  EXPECT_NEAR(view.masses.y.range->first, -view.masses.y.range->second, 1e-12);
  EXPECT_THAT(view.masses.title, HasSubstr("B less A"));
  EXPECT_TRUE(view.budgets.lines.empty());
  const auto beside = diff_view(numbers("A", {0.1}), numbers("B", {0.2}), {});
  EXPECT_EQ(beside.masses.lines.size(), 2u);
}

TEST(DiffModel, OtherDepthsPairOnRequestOnly) {
  const auto a = numbers("A", {0, 0.5, 1}), b = numbers("B", {0, 0.3, 0.5, 0.7, 1});
  EXPECT_THAT(refusal([&] { diff_view(a, b, {}); }), HasSubstr("A has 3 layers and B 5"));
  const auto view = diff_view(a, b, {DiffForm::difference, true});
  for (const auto& bar : view.masses.bars[0].bars) EXPECT_NEAR(bar.height, 0, 1e-12);
  EXPECT_THAT(view.masses.notes.front(), HasSubstr("relative depth"));
}

TEST(DiffModel, OfProfiles) {
  const OpenProfile first, second({.samples = 6, .js = false});
  Choices choices;
  choices.lazy_arrays.keep = {4, 64};
  choices.budgets.budget = 64;
  const auto numbers = [&](const profile::Reader& profile, const char* name) {
    const auto samples = all_samples(profile);
    return read_profile_numbers(profile, name, samples,
                                MethodReader(profile, samples, choices, {}).all(), choices.budgets);
  };
  const auto a = numbers(first.reader(), "A"), b = numbers(second.reader(), "B");
  EXPECT_THAT(a.missing, IsEmpty());
  ASSERT_EQ(b.missing.size(), 1u);
  EXPECT_THAT(b.missing.front(), HasSubstr("--capture js"));
  EXPECT_NEAR(a.budget[0], 0.4, 0.01);
  EXPECT_NEAR(a.similarity[1 * 4 + 2], 0.875, 1e-6);
  const auto view = diff_view(a, b, {});
  EXPECT_TRUE(view.similarity.matrices.empty());
  EXPECT_THAT(view.masses.notes, testing::Contains(HasSubstr("--capture js")));
  // Samples of A have 0.001 more mass each: 5.5 in the mean, against 2.5.
  EXPECT_NEAR(view.changes[0].first - view.changes[0].second, 0.003, 1e-6);
  EXPECT_EQ(diff_view(a, a, {}).similarity.matrices.size(), 2u);
}

}  // namespace
}  // namespace kvatlas::viewer
