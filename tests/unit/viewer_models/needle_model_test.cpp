// SPDX-License-Identifier: Apache-2.0
#include "viewer/models/needle_model.hpp"

#include <cmath>

#include <gmock/gmock.h>

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
  out.sections["lagkv"]["measured"] = {
      {"score", {{"mean", 0.5}}},
      {"by_length_and_depth", {cell(512, 0, 1), cell(1024, 0.5, 0.25), cell(512, 0.5, 0.5)}},
      {"full_by_length_and_depth", {cell(512, 0, 1), cell(1024, 0.5, 0.75), cell(512, 0.5, 1)}}};
  return out;
}

TEST(NeedleModel, ScoresOverLengthAndDepth) {
  const auto doc = document();
  const auto model = needle_model({&doc, 1});
  const Chart chart = needle_chart(model, false);
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
  const Chart chart = needle_chart(needle_model({&doc, 1}), true);
  ASSERT_EQ(chart.matrices.size(), 1u);
  EXPECT_EQ(chart.matrices[0].at(1, 1), -0.5);
  EXPECT_EQ(chart.matrices[0].at(0, 0), 0);
  EXPECT_EQ(chart.matrices[0].range, std::pair(-1.0, 1.0));
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
