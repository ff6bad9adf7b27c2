// SPDX-License-Identifier: Apache-2.0
#include "calibrate/report/report.hpp"

#include <cmath>
#include <functional>

#include <gmock/gmock.h>

#include "base/error.hpp"
#include "calibrate/policy/policy.hpp"
#include "calibrate/report/lazy_report.hpp"
#include "tests/support/measured.hpp"

namespace kvatlas::calibrate {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing_support::measured_json;

std::string refusal(const std::function<void()>& read) {
  try {
    read();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unreadable);
    return error.what();
  }
  return {};
}

TEST(Reports, WhatIsWrittenIsRead) {
  Measured measured;
  measured.samples = 10;
  measured.texts = 5;
  measured.score = {0.7, 0.4, 1};
  measured.full = {1, 0.9, 1};
  measured.loss = {0.3, 0, 0.6};
  measured.kept_share = 0.34;
  measured.held_out = true;
  measured.read_bytes = 64;
  measured.depths = {{1024, 0.5, 3, 0.25, 0.5, kNotKnown}};
  measured.turns = {{2, 8, {0.5, 0.4, 0.6}}};
  measured.held = HeldOverTokens{{1, 9}, {10, 12.5}};
  measured.tasks["needle"] = measured;
  const json written = report_json(measured);
  EXPECT_EQ(report_json(read_report<Measured>(written, "measured")), written);
  EXPECT_EQ(written.at("read_bytes_per_token").dump(), "64");  // whole numbers of bytes
  EXPECT_FALSE(written.contains("kl"));                        // which is not known
  EXPECT_FALSE(written.at("by_length_and_depth")[0].contains("digits_in_place"));
}

TEST(Reports, AScoreThatIsNoNumberIsNull) {
  Measured nothing;
  const json written = report_json(nothing);
  EXPECT_TRUE(written.at("score").at("mean").is_null());
  EXPECT_TRUE(std::isnan(read_report<Measured>(written, "measured").loss.high));
}

TEST(Reports, WhatIsMissingOrOddIsNamed) {
  const auto refused = [](const char* name, const json& value) {
    json odd = measured_json(0.5, 0.5);
    if (value.is_discarded())
      odd.erase(name);
    else
      odd[name] = value;
    return refusal([&] { read_report<Measured>(odd, "pod.measured"); });
  };
  const json gone(json::value_t::discarded);
  for (const char* name : {"samples", "score", "full", "loss", "kept_share"})
    EXPECT_EQ(refused(name, gone), str("pod.measured.", name, " is missing"));
  EXPECT_EQ(refused("texts", gone), "");
  EXPECT_EQ(refused("score", {{"mean", 1}, {"low", 1}}), "pod.measured.score.high is missing");
  EXPECT_EQ(refused("score", 1), "pod.measured.score is no object");
  EXPECT_EQ(refused("samples", 1e300), "pod.measured.samples is 1e+300, expected a whole number");
  EXPECT_EQ(refused("samples", 0.5), "pod.measured.samples is 0.5, expected a whole number");
  EXPECT_EQ(refused("kept_share", "x"),
            "pod.measured.kept_share is \"x\", expected a number or null");
  EXPECT_EQ(refused("held_out", 1), "pod.measured.held_out is 1, expected true or false");
  EXPECT_EQ(refused("tasks", {{"a b", 3}}), "pod.measured.tasks.a b is no object");
  EXPECT_EQ(refused("by_turn", {{{"turn", 1}, {"samples", 1}}}),
            "pod.measured.by_turn.0.score is missing");
}

TEST(Reports, ACurveHasTheNameOfItsSetting) {
  SimLayerKvReport report;
  report.curve.resize(1);
  report.curve[0].setting = 0.9;
  report.curve[0].score = {0.5, 0.25, 0.75};
  EXPECT_EQ(report_json(report).at("curve").dump(),
            R"([{"high":0.75,"low":0.25,"score":0.5,"threshold":0.9}])");
  EXPECT_EQ(refusal([&] { read_report<PodReport>(report_json(report), "pod"); }),
            "pod.curve.0.delta is missing");
}

TEST(Reports, OlderDocumentsAreBroughtUpToDate) {
  Document document;
  document.model = {"M", "llama", "", 2, 2, 1, 4, {}};
  document.sections["lagkv"] = section_of(LagKv{});
  json& measured = document.sections["lagkv"]["measured"];
  measured = measured_json(0.7, 0.34);
  measured.erase("loss");
  measured.erase("kept_share");
  measured["loss_points"] = {{"mean", 30}, {"low", 0}, {"high", 60}};
  measured["kv_saved"] = 0.66;
  document.compared = {{{"policy", "tova:budget=8"}, {"measured", measured}}};
  const Document read = parse_document(document_text(document));
  for (const json& of :
       {read.sections.at("lagkv").at("measured"), read.compared[0].at("measured")}) {
    const auto now = read_report<Measured>(of, "lagkv.measured");
    EXPECT_NEAR(now.loss.mean, 0.3, 1e-9);
    EXPECT_NEAR(now.loss.high, 0.6, 1e-9);
    EXPECT_NEAR(now.kept_share, 0.34, 1e-9);
    EXPECT_FALSE(of.contains("loss_points"));
    EXPECT_FALSE(of.contains("kv_saved"));
  }
}

TEST(Reports, ATableHasARowForEachTask) {
  Measured measured;
  measured.samples = 4;
  measured.texts = 2;
  measured.score = measured.full = {0.5, 0.25, 0.75};
  measured.loss = {0, -0.5, 0.5};
  measured.kept_share = 0.5;
  Measured all = measured;
  all.tasks["a"] = all.tasks["b"] = measured;
  const Table table = measured_table("title", all);
  ASSERT_EQ(table.rows.size(), 3u);
  EXPECT_EQ(table.rows[0][0].text, "a");
  EXPECT_EQ(table.rows[2][0].text, "all (mean of tasks)");
  EXPECT_THAT(table.rows[2], ElementsAre("all (mean of tasks)", "4 of 2 texts", "0.500",
                                         "0.500 [0.250, 0.750]", "0.000 [-0.500, 0.500]", 0.5));
}

TEST(Reports, CountTheLayersOfTheControlExperiment) {
  SampleMasses masses;
  // Of four layers one and two are lazy, so that as many others stand against them: 1.5.
  for (const Masses& of_sample : {Masses{{0.9}, {0.1}, {0.2}, {0.3}}, {{0.9}, {0.9}, {0.2}, {0.3}}})
    masses.add(of_sample);
  SimLayerKvReport report;
  add_lazy_report({masses, {}, {4, 1, 8}, {}}, 0.5, {}, {4096}, report);
  EXPECT_EQ(report.opposite.value().layers, 1.5);
  EXPECT_THAT(report.lazy_rates, ElementsAre(1, 0.5, 0, 0));
  EXPECT_EQ(report.samples, 2);
  ASSERT_EQ(report.savings.size(), 1u);
  EXPECT_GT(report.savings[0].kv_ratio, 1);
  EXPECT_TRUE(report.consistency.empty());
}

}  // namespace
}  // namespace kvatlas::calibrate
