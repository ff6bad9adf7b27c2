// SPDX-License-Identifier: Apache-2.0
#include "viewer/methods/comparison_model.hpp"

#include <cmath>

#include <gmock/gmock.h>

#include "tests/support/front_document.hpp"
#include "tests/support/measured.hpp"
#include "tests/support/precision_section.hpp"
#include "tests/unit/viewer_models/open_profile.hpp"

namespace kvatlas::viewer {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing_support::measured_json;

json estimate(double mean) { return {{"mean", mean}, {"low", mean - 0.1}, {"high", mean + 0.1}}; }

json curve_point(const char* setting, double value, double score) {
  return {{setting, value}, {"score", score}, {"low", score - 0.1}, {"high", score + 0.1}};
}

calibrate::Document document() {
  calibrate::Document out;
  out.model.layers = 4;
  out.model.heads = 2;
  out.model.kv_heads = 2;
  out.model.head_dim = 8;
  json lazy_low = curve_point("threshold", 0.5, 0.4),
       lazy_high = curve_point("threshold", 0.9, 0.9);
  lazy_low["kv_ratio"] = 4;
  lazy_high["kv_ratio"] = 1.25;
  out.sections["simlayerkv"] = {
      {"settings", {{"threshold", 0.9}, {"initial", 4}, {"recent", 64}}},
      {"curve", {lazy_low, lazy_high}},
      {"full", estimate(0.95)},
      {"lazy_rates", {0, 1, 0.25, 0}},
      {"measured",
       {{"samples", 8},
        {"score", estimate(0.85)},
        {"full", estimate(0.95)},
        {"loss", estimate(0.1)},
        {"kl", estimate(0.2)},
        {"kept_share", 0.8},
        {"tasks", {{"needle", measured_json(1, 0.8)}, {"passkey", measured_json(0.7, 0.8)}}}}},
      {"opposite", {{"measured", measured_json(0.3, 0.8)}}}};
  out.sections["pod"] = {{"settings", {{"delta", 0.4}}},
                         {"result", {{"lowest", {{0, 0, 2, 2}, {0, 1, 2, 2}}}}},
                         {"curve", {curve_point("delta", 0.4, 0.2)}},
                         {"sweep",
                          {{{"delta", 0.4},
                            {"blocks", 4},
                            {"keys_dropped", 0.6},
                            {"savings", {{{"length", 1000}, {"saved", 0.3}}}}}}}};
  out.sections["lagkv"] = {{"settings", {{"lag", 64}, {"ratio", "1/4"}}},
                           {"measured", measured_json(0.7, 0.35)},
                           {"sweep",
                            {{{"variant", "lag"},
                              {"lag", 64},
                              {"keep", 32},
                              {"ratio", "1/2"},
                              {"compression", 0.45},
                              {"score", 0.8},
                              {"full", 1}},
                             {{"variant", "lag"},
                              {"lag", 64},
                              {"keep", 16},
                              {"ratio", "1/4"},
                              {"compression", 0.66},
                              {"score", 0.7},
                              {"full", 1}},
                             {{"variant", "l2"},
                              {"lag", 64},
                              {"keep", 16},
                              {"ratio", "1/4"},
                              {"compression", 0.66},
                              {"score", 0.1},
                              {"full", 1}}}}};
  return out;
}

TEST(ComparisonModel, PoliciesAndControlsBesideEachOther) {
  const auto doc = document();
  const auto model = comparison_model({&doc, 1});
  EXPECT_THAT(model.tasks, ElementsAre("needle", "passkey"));
  std::vector<std::string> names;
  for (const auto& policy : model.policies) names.push_back(policy.name);
  EXPECT_THAT(
      names, ElementsAre("SimLayerKV", "LagKV", "SimLayerKV, as many layers of the smallest mass"));
  EXPECT_EQ(model.searched.size(), 6u);
  EXPECT_NEAR(model.searched[0].kept_share, 0.25, 1e-9);
  EXPECT_NEAR(model.searched[2].kept_share, 0.7, 1e-9);  // PoD's, from its sweep
  EXPECT_TRUE(model.searched[2].needs_training);

  const auto view = comparison_view(model, {1000, {}});
  const auto& table = view.pareto.table;
  ASSERT_EQ(table.rows.size(), 9u);
  for (const auto& row : table.rows) EXPECT_EQ(row.size(), table.columns.size());
  EXPECT_EQ(table.rows[0][3].text, "200 KiB");  // 256 bytes a token
  EXPECT_NEAR(table.rows[0][7].number, -10, 1e-9);
  EXPECT_NEAR(table.rows[0][9].number, 0.7, 1e-9);  // passkey
  EXPECT_TRUE(view.equal.points.empty());
  // Scores of different prompts say so, at each point and for all.
  EXPECT_EQ(view.pareto.points[0].points[0].label, "SimLayerKV, threshold 0.9, on 8 prompts");
  EXPECT_THAT(view.pareto.notes.back(),
              HasSubstr("small differences say nothing: 3 of 8 prompts; 6 of the "
                        "samples of the choice"));
  // Series and points are those of the chart.
  ASSERT_EQ(view.series.size(), view.pareto.points.size());
  for (std::size_t s = 0; s < view.series.size(); ++s) {
    ASSERT_EQ(view.series[s].size(), view.pareto.points[s].points.size());
    for (std::size_t i = 0; i < view.series[s].size(); ++i)
      EXPECT_EQ(view.series[s][i]->score.mean, view.pareto.points[s].points[i].y);
  }
  // The front rises from left to right.
  const auto& front = view.pareto.lines.front().points;
  ASSERT_EQ(front.size(), 4u);
  EXPECT_NEAR(front.front().x, 0.25, 1e-9);
  for (std::size_t i = 1; i < front.size(); ++i) EXPECT_GT(front[i].y, front[i - 1].y);
}

TEST(ComparisonModel, OfOneTaskAlone) {
  const auto doc = document();
  const auto model = comparison_model({&doc, 1}, "passkey");
  ASSERT_EQ(model.policies.size(), 1u);  // the others were measured on one task
  EXPECT_NEAR(model.policies[0].score.mean, 0.7, 1e-9);
  EXPECT_TRUE(model.searched.empty());
  EXPECT_EQ(comparison_view(model, {1000, {}}).pareto.title,
            "Score against the cache kept: passkey");
  EXPECT_THROW(comparison_model({&doc, 1}, "nothing"), Error);
}

/// Quest keeps everything and reads little: it is the best of none by what is kept.
TEST(ComparisonModel, ScoresAgainstWhatIsRead) {
  auto doc = document();
  EXPECT_TRUE(comparison_view(comparison_model({&doc, 1}), {1000, {}, {}, CostAxis::read})
                  .pareto.points.empty());
  const auto entry = [](const char* policy, double score, double kept, double read) {
    json measured = measured_json(score, kept);
    measured["read_bytes_per_token"] = 64 * read;
    measured["full_read_bytes_per_token"] = 64;
    return json{{"policy", policy}, {"measured", measured}};
  };
  doc.compared = {entry("quest:budget=64", 0.8, 1, 0.1),
                  entry("streaming:recent=64", 0.5, 0.2, 0.2),
                  entry("tova:budget=64", 0.4, 0.3, 0.3)};
  const auto view = comparison_view(comparison_model({&doc, 1}), {1000, 0.25, {}, CostAxis::read});
  EXPECT_EQ(view.pareto.x.title, "KV read a token");
  const auto& front = view.pareto.lines.front().points;
  ASSERT_EQ(front.size(), 1u);
  EXPECT_NEAR(front[0].x, 0.1, 1e-9);
  ASSERT_EQ(view.at_equal_bytes.size(), 2u);
  EXPECT_EQ(view.at_equal_bytes[0].policy->name, "quest");
  // By both: Quest reads least, streaming keeps least, and TOVA is beaten by it in everything.
  std::vector<std::string> on_front;
  for (const auto& row : view.pareto.table.rows) on_front.push_back(row.back().text);
  EXPECT_THAT(on_front, ElementsAre("yes", "yes", ""));
}

TEST(ComparisonModel, PoliciesThatWereTriedBesideIt) {
  auto doc = document();
  doc.compared = {
      {{"policy", "adakv:budget=64,safeguard=0.5+kv4"}, {"measured", measured_json(0.8, 0.2)}},
      {{"policy", "streaming:recent=32"}, {"measured", measured_json(0.1, 0.1)}},
      {{"policy", "simlayerkv:threshold=0.9+tova"},
       {"runtime", "kvpress"},
       {"measured", measured_json(0.6, 0.3)}}};
  const auto model = comparison_model({&doc, 1});
  ASSERT_EQ(model.policies.size(), 6u);
  const auto& ada = model.policies[3];
  EXPECT_EQ(ada.name, "AdaKV, 4 bits");
  EXPECT_EQ(ada.setting, "adakv:budget=64,safeguard=0.5+kv4");
  EXPECT_NEAR(ada.score.mean, 0.8, 1e-9);
  EXPECT_NEAR(ada.kept_share, 0.2, 1e-9);
  EXPECT_EQ(ada.section, "");  // choosing it sets nothing
  EXPECT_EQ(model.policies[4].name, "streaming");
  EXPECT_EQ(model.policies[5].name, "SimLayerKV + TOVA as kvpress");
  EXPECT_EQ(model.policies[5].method, "SimLayerKV + TOVA");
}

TEST(ComparisonModel, AtEqualBytes) {
  const auto doc = document();
  const auto model = comparison_model({&doc, 1});
  const auto view = comparison_view(model, {1000, 0.5});
  ASSERT_EQ(view.at_equal_bytes.size(), 3u);
  EXPECT_EQ(view.at_equal_bytes[0].policy->method, "LagKV");
  EXPECT_NEAR(view.at_equal_bytes[0].policy->score.mean, 0.7, 1e-9);
  EXPECT_EQ(view.at_equal_bytes[1].policy->setting, "threshold 0.5");
  EXPECT_EQ(view.at_equal_bytes[2].policy->method, "L2 norm");
  EXPECT_THAT(view.equal.title, HasSubstr("125 KiB"));
  EXPECT_TRUE(comparison_view(model, {1000, 0.1}).at_equal_bytes.empty());
}

TEST(ComparisonModel, LayersOfEachPolicy) {
  const auto doc = document();
  const auto view = comparison_view(comparison_model({&doc, 1}), {1000, {}});
  ASSERT_EQ(view.strips.matrices.size(), 1u);
  const auto& matrix = view.strips.matrices.front();
  EXPECT_THAT(matrix.row_labels, ElementsAre("SimLayerKV, samples", "PoD, heads"));
  EXPECT_THAT(view.strips.notes.front(), HasSubstr("compare the layers of a row, not rows"));
  EXPECT_THAT(matrix.values, ElementsAre(1, 0, 0.75, 1, 1, 0.5, 1, 0));
}

TEST(ComparisonModel, APointsSettingsAreChosen) {
  const auto doc = document();
  const auto model = comparison_model({&doc, 1});
  EXPECT_EQ(with_policy({}, model.searched[0]).lazy.threshold, 0.5);
  EXPECT_EQ(with_policy({}, model.searched[2]).blocks.delta, 0.4);
  EXPECT_EQ(with_policy({}, model.policies[1]).lag_candidate, 1);
  const Choices before;
  EXPECT_EQ(with_policy(before, model.policies[2]).lazy.threshold, before.lazy.threshold);
}

TEST(ComparisonModel, NumberFormats) {
  calibrate::Document doc;
  doc.model.layers = 4;
  doc.sections["precision"] = testing_support::precision_section();
  const auto model = comparison_model({&doc, 1});
  // The calibrated one, then one format in all layers, twice.
  ASSERT_EQ(model.policies.size(), 3u);
  EXPECT_EQ(model.policies[0].setting, "size 47.7 %");
  EXPECT_EQ(with_policy({}, model.policies[0]).precision_point, 1);
  EXPECT_EQ(model.policies[1].name, "One format in all layers");
  EXPECT_EQ(model.policies[1].setting, "q8_0");
  EXPECT_EQ(with_policy({}, model.policies[1]).precision_point, -1);
  ASSERT_EQ(model.searched.size(), 3u);
  EXPECT_NEAR(model.searched[0].kept_share, 0.3125, 1e-9);
  EXPECT_EQ(with_policy({}, model.searched[2]).precision_point, 2);
  ASSERT_EQ(model.strips.size(), 1u);
  EXPECT_THAT(model.strips[0].values, ElementsAre(8.5 / 16, 6.75 / 16, 6.75 / 16, 8.5 / 16));
  doc.sections["precision"]["size"] = "x";
  EXPECT_EQ(error_of([&] {
              comparison_model({&doc, 1});
            }),
            "precision.size is \"x\", expected a number or null");
  // Nothing held: there is no size.
  doc.sections["precision"].erase("size");
  EXPECT_EQ(comparison_model({&doc, 1}).policies[0].setting, "16 bits");
}

TEST(ComparisonModel, TheFrontOfASearch) {
  auto doc = testing_support::front_document({"Tiny", "llama", "0123456789abcdef", 4, 4, 2, 8});
  doc.sections["simlayerkv"]["measured"] = measured_json(0.9, 0.6);
  const auto model = comparison_model({&doc, 1});
  ASSERT_EQ(model.searched.size(), 3u);
  EXPECT_EQ(model.searched[1].method, "SimLayerKV + DynamicKV");
  EXPECT_EQ(model.searched[1].setting, "simlayerkv:threshold=0.7+dynamickv:budget=64");
  EXPECT_TRUE(model.searched[0].chosen);
  EXPECT_NEAR(model.most_share, 0.7, 1e-9);
  EXPECT_NEAR(model.least_score, 0.9, 1e-9);
  EXPECT_EQ(model.full.mean, 1);
  const auto emphases = [&](const ComparisonSettings& settings) {
    const auto view = comparison_view(model, settings);
    std::vector<std::string> strong;
    for (const auto& series : view.pareto.points)
      for (const auto& point : series.points)
        if (point.emphasis == Emphasis::strong) strong.push_back(point.label);
    return strong;
  };
  EXPECT_THAT(emphases({1000, {}}),
              testing::SizeIs(2));  // the measured one, and the search's choice

  const Choices chosen = with_front({}, model.searched[1], {&doc, 1}, nullptr);
  ASSERT_NE(chosen.front.document, nullptr);
  EXPECT_THAT(chosen.front.document->compose, ElementsAre("simlayerkv", "dynamickv"));
  EXPECT_THAT(emphases({1000, {}, chosen.front}),
              testing::Contains("SimLayerKV + DynamicKV, "
                                "simlayerkv:threshold=0.7+dynamickv:budget=64, on 12 prompts"));
  const auto view = comparison_view(model, {1000, {}, chosen.front});
  EXPECT_THAT(view.strips.matrices.front().row_labels,
              ElementsAre("SimLayerKV, samples", "chosen: SimLayerKV, samples",
                          "chosen: DynamicKV, tokens"));
  std::vector<std::string> marks;
  for (const auto& mark : view.pareto.marks) marks.push_back(mark.label);
  EXPECT_THAT(marks, ElementsAre("full cache", "memory allowed", "loss allowed"));
  // A setting of a method takes its place.
  EXPECT_EQ(with_policy(chosen, model.policies[0]).front.document, nullptr);
}

TEST(ComparisonModel, AFigureThatIsMissingOrNoNumberIsNamed) {
  const auto doc =
      testing_support::front_document({"Tiny", "llama", "0123456789abcdef", 4, 4, 2, 8});
  const auto refused = [&](const char* place, const json& value) {
    auto odd = doc;
    json all = {{"pareto", odd.pareto}, {"search", odd.search}, {"sections", odd.sections}};
    if (value.is_discarded())
      all = all.patch({{{"op", "remove"}, {"path", place}}});
    else
      all[json::json_pointer(place)] = value;
    odd.pareto = all["pareto"];
    odd.search = all["search"];
    odd.sections = all["sections"];
    return error_of([&] { comparison_model({&odd, 1}); });
  };
  const json gone(json::value_t::discarded);
  EXPECT_EQ(refused("/pareto/1/kept_share", "little"),
            "pareto.1.kept_share is \"little\", expected a number or null");
  EXPECT_EQ(refused("/pareto/0/bytes", gone), "pareto.0.bytes is missing");
  EXPECT_EQ(refused("/search/full_score", gone), "search.full_score is missing");
  EXPECT_EQ(refused("/sections/simlayerkv/name", 7), "simlayerkv.name is 7, expected a text");
  json measured = measured_json(0.9, 0.6);
  measured.erase("loss");
  EXPECT_EQ(refused("/sections/simlayerkv/measured", measured),
            "simlayerkv.measured.loss is missing");
  EXPECT_EQ(refused("/sections/simlayerkv/measured", 7), "simlayerkv.measured is no object");
}

TEST(ComparisonModel, ACompositionIsOnePolicy) {
  auto doc = document();
  doc.compose = {"lagkv", "simlayerkv"};
  doc.sections.erase("pod");
  for (const char* section : {"simlayerkv", "lagkv"})
    doc.sections[section]["measured"] = measured_json(0.7, 0.35);
  const auto model = comparison_model({&doc, 1});
  int whole = 0;
  for (const auto& policy : model.policies) whole += policy.name == "LagKV + SimLayerKV" ? 1 : 0;
  EXPECT_EQ(whole, 1);
}

TEST(ComparisonModel, SaysWhatIsMissing) {
  EXPECT_THAT(refusal([] { comparison_model({}); }), HasSubstr("kvatlas calibrate --model"));
  // No sweep is no sweep; another thing in its place is named.
  calibrate::Document odd = document();
  odd.sections["lagkv"].erase("sweep");
  EXPECT_NO_THROW(comparison_view(comparison_model({&odd, 1}), {1000, 0.5}));
  odd.sections["simlayerkv"]["curve"] = "none";
  EXPECT_EQ(error_of([&] { comparison_model({&odd, 1}); }), "simlayerkv.curve is no list");
}

TEST(ComparisonModel, MemoryOverGeneratedTokensIsALineAPolicy) {
  auto doc = document();
  EXPECT_TRUE(comparison_view(comparison_model({&doc, 1}), {1000, {}}).memory.lines.empty());
  const double mib = 1024.0 * 1024.0;
  json measured = measured_json(0.5, 0.5);
  measured["held_over_tokens"] = {{"tokens", {1, 2, 3}}, {"bytes", {mib, 2 * mib, mib}}};
  measured["full_held_over_tokens"] = {{"tokens", {1, 3}}, {"bytes", {4 * mib, 6 * mib}}};
  doc.compared.push_back({{"policy", "decoding:budget=64"}, {"measured", measured}});
  const Chart chart = comparison_view(comparison_model({&doc, 1}), {1000, {}}).memory;
  ASSERT_EQ(chart.lines.size(), 2u);
  EXPECT_EQ(chart.lines[0].label, "full cache");
  ASSERT_EQ(chart.lines[0].points.size(), 2u);
  EXPECT_EQ(chart.lines[0].points[1].x, 3);
  EXPECT_EQ(chart.lines[0].points[1].y, 6);
  EXPECT_EQ(chart.lines[1].label, "decoding, decoding:budget=64");
  ASSERT_EQ(chart.lines[1].points.size(), 3u);
  EXPECT_EQ(chart.lines[1].points[1].y, 2);
  EXPECT_EQ(chart.table.rows.size(), 5u);
}

}  // namespace
}  // namespace kvatlas::viewer
