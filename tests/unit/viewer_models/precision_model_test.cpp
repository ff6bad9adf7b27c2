// SPDX-License-Identifier: Apache-2.0
#include "viewer/models/precision_model.hpp"

#include <cmath>
#include <functional>

#include <gmock/gmock.h>

#include "calibrate/rules/precision.hpp"
#include "tests/support/error_of.hpp"
#include "tests/support/precision_section.hpp"
#include "viewer/models/advice.hpp"

namespace kvatlas::viewer {
namespace {

using calibrate::KvFormat;
using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Optional;
using testing::Pair;
using testing_support::error_of;
using testing_support::precision_section;
using testing_support::refusal;

TEST(PrecisionModel, ReadsWhatCalibrationFound) {
  const PrecisionModel model = precision_model(precision_section());
  EXPECT_EQ(model.layers(), 4u);
  EXPECT_THAT(model.formats, ElementsAre(KvFormat::q8_0, KvFormat::int4));
  EXPECT_EQ(model.items.size(), 8u);
  EXPECT_EQ(model.samples, 4);
  ASSERT_EQ(model.curve.size(), 3u);
  EXPECT_THAT(model.calibrated, Optional(1u));
  ASSERT_EQ(model.uniform.size(), 2u);
  EXPECT_EQ(model.uniform[1].format, KvFormat::int4);
  EXPECT_EQ(model.formats_of(2)[0].keys, KvFormat::f16);
  EXPECT_EQ(model.formats_of(std::nullopt), model.curve[1].formats);
  EXPECT_EQ(calibrate::formats_text(model.formats_of(std::nullopt)),
            "keys: 2 layers in q8_0, 2 in int4; values: 4 layers in q8_0");
  EXPECT_EQ(curve_point(model, -1), std::nullopt);
  EXPECT_THAT(curve_point(model, 2), Optional(2u));
  EXPECT_EQ(curve_point(model, 3), std::nullopt);
}

TEST(PrecisionModel, StripHasARowForEachSideAndFormat) {
  const PrecisionModel model = precision_model(precision_section());
  const Chart chart = precision_view(model, {}).strip;
  ASSERT_EQ(chart.matrices.size(), 1u);
  const Matrix& strip = chart.matrices.front();
  EXPECT_THAT(strip.row_labels,
              ElementsAre("keys q8_0", "keys int4", "values q8_0", "values int4"));
  EXPECT_THAT(strip.column_labels, ElementsAre("0", "1", "2", "3"));
  EXPECT_EQ(strip.column_texts[3], "layer 3");
  EXPECT_NEAR(strip.at(1, 0), std::log10(0.5), 0.051);
  EXPECT_NEAR(strip.at(2, 3), std::log10(0.125 / 8 / 128), 0.051);
  EXPECT_THAT(strip.range, Pair(-4, 0));
  // Row 0 is keys in q8_0, row 1 keys in int4, row 2 values in q8_0.
  EXPECT_THAT(strip.marked, ElementsAre(Pair(0, 0), Pair(0, 3), Pair(1, 1), Pair(1, 2), Pair(2, 0),
                                        Pair(2, 1), Pair(2, 2), Pair(2, 3)));
  ASSERT_EQ(chart.table.rows.size(), 4u);
  for (const auto& row : chart.table.rows) EXPECT_EQ(row.size(), chart.table.columns.size());
  EXPECT_DOUBLE_EQ(chart.table.rows[0][2].number, 0.5);
  EXPECT_EQ(chart.table.rows[1][5].text, "int4");
  EXPECT_EQ(chart.table.rows[1][6].text, "q8_0");
  // Of the largest size only the middle layers are not at 16 bits.
  EXPECT_THAT(precision_view(model, 2).strip.matrices.front().marked,
              ElementsAre(Pair(0, 1), Pair(0, 2), Pair(2, 1), Pair(2, 2)));
}

TEST(PrecisionModel, LayersTriedTogetherAreOneColumn) {
  json section = precision_section();
  section["sensitivity"]["items"] = {
      {{"layers", {0, 1, 2, 3}}, {"keys", true}, {"values", true}, {"kl", {0, 0.01}}}};
  const Chart chart = precision_view(precision_model(section), {}).strip;
  const Matrix& strip = chart.matrices.front();
  EXPECT_THAT(strip.row_labels, ElementsAre("keys and values q8_0", "keys and values int4"));
  EXPECT_THAT(strip.column_labels, ElementsAre("0 to 3"));
  EXPECT_THAT(strip.values, ElementsAre(-6, -2));  // 0 is drawn as the least
  EXPECT_EQ(chart.table.rows[0][1].number, 0);
}

TEST(PrecisionModel, CurveHasScoresAndDivergencesAndWhatIsChosen) {
  const PrecisionModel model = precision_model(precision_section());
  const PrecisionView view = precision_view(model, {});
  EXPECT_THAT(view.points, ElementsAre(0u, 1u, 2u));
  ASSERT_EQ(view.curve.points.size(), 2u);
  const auto& tried = view.curve.points[0].points;
  EXPECT_EQ(tried[0].emphasis, Emphasis::normal);
  EXPECT_EQ(tried[1].emphasis, Emphasis::strong);
  EXPECT_DOUBLE_EQ(tried[1].low, 0.85);
  EXPECT_EQ(view.curve.points[1].points.size(), 2u);
  EXPECT_EQ(view.curve.lines.back().label, "full cache");
  ASSERT_EQ(view.curve.bands.size(), 1u);
  EXPECT_DOUBLE_EQ(view.curve.bands[0].edges[0].low, 0.89);
  ASSERT_EQ(view.curve.lines.size(), 3u);
  EXPECT_TRUE(view.curve.lines[0].right);
  EXPECT_DOUBLE_EQ(view.curve.lines[0].points[0].y, 2.5);
  EXPECT_DOUBLE_EQ(view.curve.lines[1].points[0].y, 1.1);
  ASSERT_EQ(view.curve.marks.size(), 1u);
  EXPECT_EQ(view.curve.marks[0].label, "calibrated");
  EXPECT_DOUBLE_EQ(view.curve.marks[0].at, 0.4765625);
  ASSERT_EQ(view.curve.table.rows.size(), 5u);
  for (const auto& row : view.curve.table.rows)
    EXPECT_EQ(row.size(), view.curve.table.columns.size());

  const PrecisionView chosen = precision_view(model, 0);
  EXPECT_EQ(chosen.curve.points[0].points[0].emphasis, Emphasis::strong);
  EXPECT_EQ(chosen.curve.marks[0].label, "chosen");
  EXPECT_THAT(chosen.curve.notes,
              ElementsAre("chosen: keys: 4 layers in int4; values: 4 layers in int4"));
}

TEST(PrecisionModel, WithoutASizeThatHoldsEverythingStaysAt16Bits) {
  json section = precision_section();
  for (const char* side : {"keys", "values"}) section["result"][side] = {"16", "16", "16", "16"};
  const PrecisionModel model = precision_model(section);
  EXPECT_EQ(model.calibrated, std::nullopt);
  const PrecisionView view = precision_view(model, {});
  EXPECT_THAT(view.curve.marks, IsEmpty());
  EXPECT_THAT(view.strip.matrices.front().marked, IsEmpty());
  EXPECT_EQ(precision_advice(model, {}).reason, "Everything stays at 16 bits.");
}

TEST(PrecisionModel, AdviceNamesTheCostliestLayerAndTheSumThatFailed) {
  const PrecisionModel model = precision_model(precision_section());
  const Advice calibrated = precision_advice(model, {});
  EXPECT_THAT(calibrated.reason, HasSubstr("the keys of layer 0 alone in int4"));
  EXPECT_THAT(calibrated.risk, HasSubstr("on 4 samples"));
  EXPECT_THAT(calibrated.layer, Optional(0));
  EXPECT_THAT(precision_advice(model, 0).risk, HasSubstr("2.5000, where their sum is 1.1000"));
}

TEST(PrecisionModel, WhatIsNoEntryIsNamed) {
  const auto refused = [](const char* place, const json& value) {
    json section = precision_section();
    section[json::json_pointer(place)] = value;
    return error_of([&] { precision_model(section); });
  };
  const auto item = [](const json& layers, const json& kl) {
    return json{{"layers", layers}, {"keys", true}, {"values", false}, {"kl", kl}};
  };
  EXPECT_EQ(refused("/sensitivity/items/0", 7), "precision.sensitivity.items.0 is no object");
  for (const json& odd :
       {item({4}, {0, 0}), item({-1}, {0, 0}), item(json::array(), {0, 0}), item({0}, {0})})
    EXPECT_THAT(refused("/sensitivity/items/0", odd), HasSubstr("not of this model's layers"));
  EXPECT_THAT(refused("/sensitivity/items/0", item({0.5}, {0, 0})), HasSubstr("a whole number"));
  EXPECT_EQ(refused("/curve/0", "no point"), "precision.curve.0 is no object");
  EXPECT_THAT(refused("/curve/0/keys", {"q8_0"}), HasSubstr("another number of layers"));
  EXPECT_THAT(refused("/curve/0/keys", {"?", "?", "?", "?"}), HasSubstr("no format '?'"));
  EXPECT_THAT(refused("/curve/0/size", "half"), HasSubstr("precision.curve.0.size is \"half\""));
  EXPECT_EQ(refused("/uniform/q8_0", 3), "precision.uniform.q8_0 is no object");
  // A divergence that is missing is a gap.
  json section = precision_section();
  section["sensitivity"]["items"][0]["kl"] = {nullptr, nullptr};
  const Chart gap = precision_view(precision_model(section), {}).strip;
  EXPECT_TRUE(std::isnan(gap.matrices.front().at(0, 0)));
  EXPECT_TRUE(std::isnan(gap.matrices.front().at(1, 0)));
  EXPECT_FALSE(std::isnan(gap.matrices.front().at(1, 1)));
}

TEST(PrecisionModel, OneHalfAlone) {
  json section = precision_section();
  section.erase("sensitivity");
  EXPECT_FALSE(has_content(precision_view(precision_model(section), {}).strip));
  section = precision_section();
  section.erase("curve");
  section.erase("uniform");
  EXPECT_FALSE(has_content(precision_view(precision_model(section), {}).curve));
}

TEST(PrecisionModel, RefusesWhatWasNotCalibrated) {
  EXPECT_THAT(refusal([] { precision_model(nullptr); }), HasSubstr("kvatlas calibrate precision"));
  EXPECT_THAT(refusal([] { precision_model(json::array()); }), HasSubstr("no number formats"));
  EXPECT_THAT(refusal([] { precision_model(calibrate::section_of(calibrate::Precision{})); }),
              HasSubstr("no number formats by layer"));
  const auto changed = [](const std::function<void(json&)>& change) {
    json section = precision_section();
    change(section);
    return error_of([&] { precision_model(section); });
  };
  EXPECT_THAT(changed([](json& section) { section["curve"] = section["sensitivity"] = nullptr; }),
              HasSubstr("does not say how its number formats were found"));
  EXPECT_THAT(changed([](json& section) { section["result"] = 3; }), HasSubstr("result"));
  EXPECT_THAT(changed([](json& section) { section["result"]["keys"] = {"q8_0"}; }),
              HasSubstr("layers"));
  EXPECT_THAT(changed([](json& section) { section["result"]["keys"][1] = "int3"; }),
              HasSubstr("'int3'"));
  EXPECT_THAT(changed([](json& section) { section["sensitivity"]["formats"][0] = "int3"; }),
              HasSubstr("int3"));
}

}  // namespace
}  // namespace kvatlas::viewer
