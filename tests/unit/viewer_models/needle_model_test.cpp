// SPDX-License-Identifier: Apache-2.0
#include "viewer/models/needle_model.hpp"

#include <cmath>

#include <gmock/gmock.h>

#include "tests/support/measured.hpp"
#include "tests/unit/viewer_models/open_profile.hpp"

namespace kvatlas::viewer {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;

json cell(int length, double depth, double score) {
  return {{"length", length}, {"depth", depth}, {"samples", 2}, {"score", score}};
}

calibrate::Document document() {
  calibrate::Document out;
  json& measured = out.sections["lagkv"]["measured"];
  measured = testing_support::measured_json(0.5, 0.6);
  measured["by_length_and_depth"] = {cell(512, 0, 1), cell(1024, 0.5, 0.25), cell(512, 0.5, 0.5)};
  measured["full_by_length_and_depth"] = {cell(512, 0, 1), cell(1024, 0.5, 0.75),
                                          cell(512, 0.5, 1)};
  return out;
}

TEST(NeedleModel, ScoresOverLengthAndDepth) {
  const auto doc = document();
  const auto model = needle_model({&doc, 1});
  const Chart chart = needle_chart(model, ShownScore::attention, false);
  ASSERT_EQ(chart.matrices.size(), 2u);
  EXPECT_EQ(chart.matrices[0].label, "full cache");
  const Matrix& lag = chart.matrices[1];
  EXPECT_THAT(lag.column_labels, ElementsAre("512", "1024"));
  EXPECT_THAT(lag.row_labels, ElementsAre("0.0 %", "50.0 %"));
  EXPECT_EQ(lag.at(0, 0), 1);
  EXPECT_TRUE(std::isnan(lag.at(0, 1)));
  EXPECT_EQ(lag.at(1, 1), 0.25);
  EXPECT_EQ(chart.table.rows.size(), 6u);
}

TEST(NeedleModel, DifferenceFromTheFullCache) {
  const auto doc = document();
  const Chart chart = needle_chart(needle_model({&doc, 1}), ShownScore::digits_prefix, true);
  ASSERT_EQ(chart.matrices.size(), 1u);
  EXPECT_EQ(chart.matrices[0].at(1, 1), -0.5);
  EXPECT_EQ(chart.matrices[0].at(0, 0), 0);
  EXPECT_EQ(chart.matrices[0].range, std::pair(-1.0, 1.0));
}

TEST(NeedleModel, DigitsOfPassKeys) {
  auto doc = document();
  EXPECT_FALSE(needle_model({&doc, 1}).has_digits());
  auto& measured = doc.sections["lagkv"]["measured"];
  measured["by_length_and_depth"][1].update({{"digits_prefix", 0.125}, {"digits_in_place", 0.5}});
  measured["full_by_length_and_depth"][1].update({{"digits_prefix", 1}, {"digits_in_place", 0.75}});
  const auto model = needle_model({&doc, 1});
  EXPECT_TRUE(model.has_digits());
  const Chart prefix = needle_chart(model, ShownScore::digits_prefix, false);
  EXPECT_THAT(prefix.title, HasSubstr("digits right up to the first wrong one"));
  EXPECT_EQ(prefix.matrices[0].at(1, 1), 1);
  EXPECT_EQ(prefix.matrices[1].at(1, 1), 0.125);
  EXPECT_TRUE(std::isnan(prefix.matrices[1].at(0, 0)));  // of prompts without a pass key
  const Chart lost = needle_chart(model, ShownScore::digits_in_place, true);
  EXPECT_EQ(lost.matrices[0].at(1, 1), -0.25);
  EXPECT_EQ(lost.table.columns[4].title, "digits right at their place");
  EXPECT_EQ(needle_chart(model, ShownScore::score, false).matrices[1].at(1, 1), 0.25);
}

TEST(NeedleModel, ACompositionIsShownOnce) {
  auto doc = document();
  doc.sections["simlayerkv"] = doc.sections["lagkv"];
  doc.compose = {"simlayerkv", "lagkv"};
  const auto model = needle_model({&doc, 1});
  ASSERT_EQ(model.maps.size(), 2u);
  EXPECT_EQ(model.maps[1].policy, "SimLayerKV + LagKV");
}

TEST(NeedleModel, SaysHowItIsMeasured) {
  calibrate::Document bare;
  EXPECT_THAT(refusal([&] { needle_model({&bare, 1}); }), HasSubstr("kvatlas evaluate"));
}

}  // namespace
}  // namespace kvatlas::viewer
