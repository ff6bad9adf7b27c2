// SPDX-License-Identifier: Apache-2.0
// What changed between two profiles and two documents.
#include "calibrate/inspect/diff.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "tests/support/error_of.hpp"
#include "tests/support/model_bytes.hpp"
#include "tests/support/small_profile.hpp"

namespace kvatlas::calibrate {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;
using namespace testing_profile;

class DiffOf : public testing::Test {
 protected:
  profile::Reader profile(const Shape& shape) {
    const auto path = folder_.path() / ("p" + std::to_string(++files_) + ".h5");
    write_profile(path, shape);
    return profile::Reader(path);
  }
  testing_support::TemporaryFolder folder_;
  int files_ = 0;
};

TEST_F(DiffOf, EqualProfilesDoNotDiffer) {
  const auto first = profile({}), second = profile({});
  const Diff diff = diff_profiles(first, second);
  EXPECT_THAT(diff.changes, IsEmpty());
  EXPECT_GT(diff.compared, 10u);
  EXPECT_THAT(diff.notes, Contains(HasSubstr("12 samples have the same tokens")));
}

TEST_F(DiffOf, AChangedLayerLeadsTheList) {
  const auto first = profile({}), second = profile({.raised_layer = 2, .raised_by = 0.25});
  const Diff diff = diff_profiles(first, second);
  ASSERT_THAT(diff.changes, SizeIs(2));  // at both proximities
  const Change& change = diff.changes[0];
  EXPECT_THAT(change.what, HasSubstr("layer mass, initial="));
  EXPECT_EQ(change.where, "layer 2");
  EXPECT_NEAR(change.difference->mean, 0.25, 1e-6);
  EXPECT_NEAR(change.second.get<double>() - change.first.get<double>(), 0.25, 1e-6);
  // Without common samples the spread of both widens the interval.
  const auto fewer =
      profile({.samples = 6, .raised_layer = 2, .raised_by = 0.25, .first_token = 50});
  const Diff unpaired = diff_profiles(first, fewer);
  EXPECT_THAT(unpaired.notes, Contains(HasSubstr("other tokens")));
  const auto found = std::find_if(unpaired.changes.begin(), unpaired.changes.end(),
                                  [](const Change& one) { return one.where == "layer 2"; });
  ASSERT_NE(found, unpaired.changes.end());
  EXPECT_LT(found->difference->low, 0.2475);
  EXPECT_GT(found->difference->high, found->difference->low);
}

TEST_F(DiffOf, WhatOneProfileLacksIsSaid) {
  const auto first = profile({}), second = profile({.js = false, .kept = false});
  const Diff diff = diff_profiles(first, second);
  EXPECT_THAT(diff.notes, Contains(HasSubstr("attention kept: only one")));
  const auto bare = profile({.lazy = false, .js = false, .kept = false});
  EXPECT_THAT(testing_support::error_of([&] { diff_profiles(bare, second); }),
              HasSubstr("no statistics in common"));
}

TEST_F(DiffOf, OneSampleShowsNoSpread) {
  const auto first = profile({}), second = profile({.samples = 1});
  EXPECT_THAT(testing_support::error_of([&] { diff_profiles(first, second); }),
              HasSubstr("12 and 1 samples"));
}

Document document(double threshold, const std::vector<std::uint8_t>& lazy, double score) {
  Document out;
  out.model = {"m", "llama", "f", 4, 4, 2, 8};
  SimLayerKv part;
  part.threshold = threshold;
  part.fixed.emplace();
  for (const auto flag : lazy) part.fixed->push_back({flag});
  out.sections["simlayerkv"] = section_of(part);
  out.sections["simlayerkv"]["measured"]["score"] = {
      {"mean", score}, {"low", score - 0.05}, {"high", score + 0.05}};
  return out;
}

TEST_F(DiffOf, Documents) {
  const Document first = document(0.8, {0, 1, 1, 0}, 0.9);
  EXPECT_THAT(diff_documents(first, first).changes, IsEmpty());
  // A score within its interval is no change; a threshold and a layer are.
  const Diff diff = diff_documents(first, document(0.7, {0, 1, 0, 0}, 0.88));
  ASSERT_THAT(diff.changes, SizeIs(2));
  EXPECT_EQ(diff.changes[1].what, "simlayerkv.settings.threshold");
  EXPECT_EQ(diff.changes[1].first, 0.8);
  EXPECT_EQ(diff.changes[1].second, 0.7);
  const Diff worse = diff_documents(first, document(0.8, {0, 1, 1, 0}, 0.6));
  ASSERT_THAT(worse.changes, SizeIs(1));
  EXPECT_EQ(worse.changes[0].what, "simlayerkv.measured.score");
  EXPECT_NEAR(worse.changes[0].difference->mean, -0.3, 1e-9);
  EXPECT_EQ(table_text(diff_table({}, 30)), "Nothing changed\n");
  const Table table = diff_table(diff, 1);
  EXPECT_THAT(table.rows, SizeIs(1));
  EXPECT_THAT(table.title, HasSubstr("2 changes, of which 1"));
}

}  // namespace
}  // namespace kvatlas::calibrate
