// SPDX-License-Identifier: Apache-2.0
#include "viewer/screens/comparison_screen.hpp"

#include <QComboBox>
#include <QListWidget>
#include <QSignalSpy>
#include <tuple>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "calibrate/rules/policy_reports.hpp"
#include "tests/gui/gui_support.hpp"
#include "tests/support/measured.hpp"

namespace kvatlas::viewer {
namespace {

using namespace testing_gui;
using nlohmann::json;

json estimate(double mean) { return {{"mean", mean}, {"low", mean - 0.1}, {"high", mean + 0.05}}; }

/// Lazy layers at two thresholds, budgets, and what they score.
calibrate::Document document(const profile::Header& header) {
  calibrate::Document out;
  out.model = calibrate::model_info(header);
  calibrate::SimLayerKv lazy;
  lazy.keep = {4, 64};
  lazy.threshold = 0.7;
  json section = calibrate::section_of(lazy);
  section["lazy_rates"] = {0, 1, 0.25, 1};
  section["measured"] = {{"samples", 8},
                         {"score", estimate(0.9)},
                         {"full", estimate(0.95)},
                         {"loss", estimate(0.05)},
                         {"kept_share", 0.6}};
  section["curve"] = {
      {{"threshold", 0.5}, {"score", 0.5}, {"low", 0.4}, {"high", 0.6}, {"kv_ratio", 4}},
      {{"threshold", 0.7}, {"score", 0.9}, {"low", 0.8}, {"high", 0.95}, {"kv_ratio", 1.6}}};
  out.sections["simlayerkv"] = section;
  calibrate::DynamicKv dynamic;
  dynamic.select.budget = 64;
  dynamic.fixed = {{80, 60, 40, 12}};
  section = calibrate::section_of(dynamic);
  section["measured"] = testing_support::measured_json(0.7, 0.2);
  out.sections["dynamickv"] = section;
  return out;
}

class ComparisonTest : public testing::Test {
 protected:
  Session& session() { return small_.session(); }
  void open_document() {
    const auto path = small_.folder() / "policy.json";
    calibrate::write_document(document(session().profile()->header()), path, true);
    open_and_wait(session(), {path});
  }
  void open_baseline() {
    const auto path = small_.folder() / "other.h5";
    calibrate::testing_profile::write_profile(path, {.samples = 6});
    open_and_wait(session(), {path}, true);
    ASSERT_NE(session().baseline(), nullptr);
  }
  static void show(ComparisonScreen& screen) {
    screen.resize(1000, 700);
    screen.show();
  }
  SmallSession small_;
};

TEST_F(ComparisonTest, WhatIsReadAndWhatIsHeld) {
  auto out = document(session().profile()->header());
  constexpr double mib = 1 << 20;
  for (const auto& [policy, score, kept, read] :
       {std::tuple("quest:budget=64", 0.85, 1.0, 0.15), {"tova:budget=64", 0.6, 0.2, 0.2}}) {
    json measured = testing_support::measured_json(score, kept);
    measured["read_bytes_per_token"] = 64 * read;
    measured["full_read_bytes_per_token"] = 64;
    measured["held_over_tokens"] = {{"tokens", {1, 60}}, {"bytes", {kept * mib, kept * 2 * mib}}};
    measured["full_held_over_tokens"] = {{"tokens", {1, 60}}, {"bytes", {mib, 2 * mib}}};
    const auto turn = [](int number, double mean) {
      return json{{"turn", number}, {"samples", 8}, {"score", estimate(mean)}};
    };
    measured["by_turn"] = {turn(1, score), turn(2, kept)};
    measured["full_by_turn"] = {turn(1, 0.95), turn(2, 0.9)};
    out.compared.push_back({{"policy", policy}, {"measured", measured}});
  }
  calibrate::write_document(out, small_.folder() / "policy.json", true);
  open_and_wait(session(), {small_.folder() / "policy.json"});
  ComparisonScreen screen(session(), nullptr);
  show(screen);
  ASSERT_TRUE(wait_until([&] { return screen.settled() && screen.view().series.size() == 4; }));
  EXPECT_EQ(screen.memory_chart().chart().lines.size(), 3u);
  const Chart& turns = screen.turns_chart().chart();
  ASSERT_EQ(turns.lines.size(), 3u);  // the full cache's first
  EXPECT_EQ(turns.lines[0].points[1].y, 0.9);
  EXPECT_EQ(turns.lines[2].points[1].y, 0.2);
  screen.findChild<QComboBox*>("cost")->setCurrentIndex(1);
  ASSERT_TRUE(wait_until([&] { return screen.settled() && screen.view().series.size() == 2; }));
  EXPECT_TRUE(screen.focus_text().contains("quest"));
  grab_screenshots(screen, session(), "comparison-read");
}

TEST_F(ComparisonTest, PoliciesOfDocuments) {
  ComparisonScreen screen(session(), nullptr);
  show(screen);
  EXPECT_TRUE(screen.message().contains("kvatlas calibrate --model"));
  open_document();
  ASSERT_TRUE(wait_until([&] { return !screen.view().pareto.points.empty(); }));
  EXPECT_TRUE(screen.message().isEmpty());
  EXPECT_EQ(screen.table().rows.size(), 4u);
  EXPECT_EQ(screen.view().strips.matrices.front().row_labels.size(), 2u);
  ASSERT_NE(screen.picture(), nullptr);
  grab_screenshots(screen, session(), "comparison");

  // The handle: at 30 % only DynamicKV and the lower threshold are left.
  EXPECT_EQ(screen.view().at_equal_bytes.size(), 2u);
  emit screen.pareto_chart().handle_moved(Handle::compared_share, 0.22, true);
  ASSERT_TRUE(wait_until([&] { return screen.view().at_equal_bytes.size() == 1; }));
  EXPECT_EQ(screen.view().at_equal_bytes[0].policy->method, "DynamicKV");
  EXPECT_TRUE(screen.act(Act::handle_up_fast));
  ASSERT_TRUE(wait_until([&] { return screen.view().at_equal_bytes.size() == 2; }));
}

TEST_F(ComparisonTest, APointsSettingsAreLoaded) {
  open_document();
  ComparisonScreen screen(session(), nullptr);
  show(screen);
  ASSERT_TRUE(wait_until([&] { return !screen.view().pareto.points.empty(); }));
  const auto& series = screen.view().series;
  int of_search = -1;
  for (std::size_t i = 0; i < series[0].size(); ++i)
    if (series[0][i]->value == 0.5) of_search = static_cast<int>(i);
  ASSERT_GE(of_search, 0);
  emit screen.pareto_chart().point_chosen(0, of_search);
  EXPECT_EQ(session().choices().lazy.threshold, 0.5);
  session().undo().undo();
  EXPECT_EQ(session().choices().lazy.threshold, 0.7);
  emit screen.pareto_chart().point_chosen(7, 99);  // nothing there
  EXPECT_EQ(session().choices().lazy.threshold, 0.7);
}

TEST_F(ComparisonTest, TwoProfiles) {
  ComparisonScreen screen(session(), nullptr);
  show(screen);
  screen.show_kind(ComparisonScreen::Show::profiles);
  EXPECT_TRUE(screen.message().contains("baseline"));
  open_baseline();
  ASSERT_TRUE(wait_until([&] { return !screen.diff().changes.empty(); }));
  EXPECT_TRUE(screen.message().isEmpty());
  EXPECT_EQ(screen.diff().masses.lines.size(), 2u);
  grab_screenshots(screen, session(), "comparison-profiles");
  EXPECT_TRUE(screen.act(Act::difference));
  ASSERT_TRUE(wait_until([&] { return !screen.diff().masses.bars.empty(); }));
  grab_screenshots(screen, session(), "comparison-difference");
  // A change leads to its layer.
  ASSERT_GT(screen.changes().count(), 2);
  for (int row = 0; row < screen.changes().count(); ++row) {
    screen.changes().setCurrentRow(row);
    EXPECT_EQ(session().selection().current().layer, screen.diff().changes[row].layer);
  }
  session().close_baseline();
  ASSERT_TRUE(wait_until([&] { return screen.message().contains("baseline"); }));
}

}  // namespace
}  // namespace kvatlas::viewer
