// SPDX-License-Identifier: Apache-2.0
// The baseline's screen beside the one in front, or over a part of it.
#include <QLabel>
#include <QScrollArea>
#include <QScrollBar>
#include <QTest>
#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "calibrate/rules/policy_reports.hpp"
#include "tests/gui/gui_support.hpp"
#include "tests/gui/map_profile.hpp"
#include "viewer/frame/baseline_beside.hpp"
#include "viewer/frame/difference_view.hpp"
#include "viewer/frame/main_window.hpp"
#include "viewer/screens/lazy_screen.hpp"

namespace kvatlas::viewer {
namespace {

using namespace testing_gui;
using ::testing::HasSubstr;

class Beside : public testing::Test {
 protected:
  void SetUp() override {
    window_ = std::make_unique<MainWindow>(
        session(), QString::fromStdString((small_.folder() / "v.ini").string()));
    window_->resize(1280, 720);
    window_->show();
    emit session().profile_changed();
    ASSERT_TRUE(window_->show_screen("lazy"));
    // Fewer samples, and another layer that is lazy.
    const auto path = small_.folder() / "other.h5";
    calibrate::testing_profile::write_profile(path,
                                              {.samples = 6, .raised_layer = 0, .raised_by = 0.6});
    open_and_wait(session(), {path}, true);
    ASSERT_NE(session().baseline(), nullptr);
  }
  Session& session() { return small_.session(); }
  void press(const char* action) { window_->actions()[action]->trigger(); }
  LazyScreen* other() {
    auto* screen = qobject_cast<LazyScreen*>(window_->beside().other());
    if (screen && !wait_until([&] { return screen->settled() && screen->message().isEmpty(); }))
      ADD_FAILURE() << screen->message().toStdString();
    return screen;
  }
  SmallSession small_;
  std::unique_ptr<MainWindow> window_;
};

TEST_F(Beside, TheSameScreenOfTheBaselineFollowsAndLeads) {
  EXPECT_EQ(window_->beside().other(), nullptr);
  press("in.beside");
  LazyScreen* screen = other();
  ASSERT_NE(screen, nullptr);
  EXPECT_TRUE(window_->findChild<QLabel*>("beside.names")->text().contains("other.h5"));
  EXPECT_FALSE(window_->screen()->geometry().isEmpty());
  grab_screenshots(*window_, session(), "beside");
  // Its numbers are the baseline's: layer 0 has a greater mass there.
  auto* front = qobject_cast<LazyScreen*>(window_->screen());
  ASSERT_TRUE(wait_until([&] { return front->settled(); }));
  ASSERT_FALSE(front->table().rows.empty());
  EXPECT_NEAR(screen->table().rows[0][1].number - front->table().rows[0][1].number, 0.6, 0.1);

  // Settings and place are shared, whichever side they are moved on.
  const double before = session().choices().lazy.threshold;
  ASSERT_TRUE(screen->act(Act::handle_down_fast));
  EXPECT_NEAR(session().choices().lazy.threshold, before - 0.1, 1e-9);
  session().undo().undo();
  EXPECT_NEAR(session().choices().lazy.threshold, before, 1e-9);
  Selection selection = session().selection().current();
  selection.sample = 9;  // the baseline has six
  selection.layer = 2;
  session().selection().set(selection);
  EXPECT_EQ(session().selection().current().sample, 9u);
  press("in.beside");
  EXPECT_EQ(window_->beside().other(), nullptr);
  EXPECT_EQ(window_->screen()->width(), window_->beside().width());
}

TEST(Follow, APartOfThePromptIsTheSameShareOfTheOthers) {
  using Tokens = std::pair<std::int64_t, std::int64_t>;
  testing_support::TemporaryFolder folder;
  write_map_profile(folder.path() / "p.h5", {700});
  write_map_profile(folder.path() / "q.h5", {350});
  Session leader;
  open_and_wait(leader, {folder.path() / "p.h5"});
  open_and_wait(leader, {folder.path() / "q.h5"}, true);
  Session follower;
  follower.follow(leader);
  ASSERT_TRUE(wait_until([&] { return follower.profile() != nullptr; }));
  const auto select = [](Session& session, const Tokens& tokens) {
    Selection selection = session.selection().current();
    selection.tokens = tokens;
    session.selection().set(selection);
  };
  select(leader, {100, 200});
  EXPECT_EQ(follower.selection().current().tokens, (Tokens{50, 100}));
  EXPECT_EQ(leader.selection().current().tokens, (Tokens{100, 200}));
  select(follower, {10, 21});
  EXPECT_EQ(leader.selection().current().tokens, (Tokens{20, 42}));
  EXPECT_EQ(follower.selection().current().tokens, (Tokens{10, 21}));
}

/// The document's scores, of prompts of the profile, are not the baseline's.
TEST_F(Beside, ScoresAreThoseOfTheirOwnProfile) {
  calibrate::Document document;
  document.model = calibrate::model_info(session().profile()->header());
  document.provenance.profile = session().profile()->fingerprint();
  document.sections["simlayerkv"] = calibrate::section_of(calibrate::SimLayerKv{.keep = {4, 64}});
  document.sections["simlayerkv"]["curve"] = {
      {{"threshold", 0.5}, {"score", 0.5}, {"low", 0.4}, {"high", 0.6}, {"kv_ratio", 4}}};
  calibrate::write_document(document, small_.folder() / "policy.json", true);
  open_and_wait(session(), {small_.folder() / "policy.json"});
  press("in.beside");
  LazyScreen* screen = other();
  ASSERT_NE(screen, nullptr);
  const auto has_score = [](const LazyScreen& of) {
    for (const Chart& chart : of.charts())
      for (const Line& line : chart.lines)
        if (line.label == "score") return true;
    return false;
  };
  auto* front = qobject_cast<LazyScreen*>(window_->screen());
  EXPECT_TRUE(wait_until([&] { return front->settled() && has_score(*front); }));
  ASSERT_TRUE(wait_until([&] { return screen->settled() && !screen->charts().empty(); }));
  EXPECT_FALSE(has_score(*screen));
}

TEST_F(Beside, SwipeShowsItRightOfALine) {
  press("in.swipe");
  LazyScreen* screen = other();
  ASSERT_NE(screen, nullptr);
  EXPECT_EQ(screen->size(), window_->screen()->size());
  const int middle = screen->mask().boundingRect().left();
  window_->beside().set_line(0.25);
  EXPECT_NEAR(screen->mask().boundingRect().left(), 0.5 * middle, 2);
  grab_screenshots(*window_, session(), "swipe");
  press("in.beside");  // another form, the same screen
  EXPECT_EQ(window_->beside().other(), screen);
  EXPECT_TRUE(screen->mask().isEmpty());
}

TEST_F(Beside, InASmallWindowBothShowTheSamePart) {
  window_->resize(1024, 520);
  press("in.swipe");
  LazyScreen* screen = other();
  ASSERT_NE(screen, nullptr);
  const auto bar_of = [](const QWidget& page) {
    return page.findChild<QScrollArea*>("page")->verticalScrollBar();
  };
  QScrollBar *mine = bar_of(*window_->screen()), *theirs = bar_of(*screen);
  ASSERT_TRUE(
      wait_until([&] { return mine->maximum() > 50 && mine->maximum() == theirs->maximum(); }));
  mine->setValue(40);
  EXPECT_EQ(theirs->value(), 40);
  theirs->setValue(10);
  EXPECT_EQ(mine->value(), 10);
  const auto place = [](QWidget& page) {
    return page.findChildren<ChartView*>()[1]->mapTo(&page, QPoint());
  };
  EXPECT_EQ(place(*window_->screen()), place(*screen));
}

TEST_F(Beside, DifferenceOfEveryChartInTheirPlace) {
  press("in.difference");
  LazyScreen* screen = other();
  ASSERT_NE(screen, nullptr);
  DifferenceView* view = window_->beside().difference();
  ASSERT_NE(view, nullptr);
  ASSERT_TRUE(wait_until([&] { return !view->charts().empty(); }));
  auto* front = qobject_cast<LazyScreen*>(window_->screen());
  const Chart shown = view->charts().front();
  EXPECT_THAT(shown.title, HasSubstr("p.h5 less other.h5"));
  ASSERT_FALSE(shown.bars.empty());
  // Layer 0 has a greater mass in the baseline, the others the same.
  const auto medians = std::find_if(shown.bars.begin(), shown.bars.end(), [](const Bars& bars) {
    return bars.label == "difference of the medians";
  });
  ASSERT_NE(medians, shown.bars.end());
  ASSERT_EQ(medians->bars.size(), 4u);
  EXPECT_NEAR(medians->bars[0].height, -0.6, 0.1);
  EXPECT_NEAR(medians->bars[1].height, 0, 0.05);
  EXPECT_TRUE(view->isVisible());
  EXPECT_GT(view->y(), 0);  // the controls stay in sight
  grab_screenshots(*window_, session(), "difference");

  // What the controls change is compared anew; what is exported and read is the difference.
  const auto told = [&] { return view->charts().front().notes.at(0); };  // the titles' numbers
  const std::string before = told();
  ASSERT_TRUE(front->act(Act::handle_down_fast));
  ASSERT_TRUE(wait_until([&] { return told() != before; }));
  ASSERT_NE(window_->beside().picture(), nullptr);
  EXPECT_THAT(window_->beside().picture()->csv(), HasSubstr("less other.h5"));
  EXPECT_EQ(view->table().columns.back().title, "difference");

  press("in.swipe");
  EXPECT_EQ(window_->beside().difference(), nullptr);
  EXPECT_FALSE(view->isVisible());
  ASSERT_NE(window_->beside().picture(), nullptr);
  press("in.difference");
  press("in.difference");
  EXPECT_EQ(window_->beside().form(), Compare::off);
}

TEST_F(Beside, DifferenceOfEveryScreenThatHasCharts) {
  press("in.difference");
  DifferenceView* view = window_->findChild<DifferenceView*>();
  ASSERT_NE(view, nullptr);
  for (const char* id : {"overview", "lazy", "blocks", "budgets"}) {
    ASSERT_TRUE(window_->show_screen(id)) << id;
    ASSERT_TRUE(wait_until([&] { return view->id() == id && !view->charts().empty(); })) << id;
    for (const auto& chart : view->charts())
      EXPECT_THAT(chart.title, HasSubstr("less other.h5")) << id;
    grab_screenshots(*window_, session(), QStringLiteral("difference_%1").arg(id));
  }
}

TEST_F(Beside, WithoutStatisticsTheDifferenceSaysWhy) {
  press("in.difference");
  ASSERT_TRUE(window_->show_screen("rows"));  // not captured in either
  DifferenceView* view = window_->beside().difference();
  ASSERT_NE(view, nullptr);
  auto* message = view->findChild<QLabel*>("difference.message");
  ASSERT_TRUE(wait_until([&] { return message->text().contains("--capture maps"); }));
  EXPECT_EQ(view->picture(), nullptr);
}

TEST_F(Beside, GoesWithTheScreenAndTheBaseline) {
  press("in.difference");
  ASSERT_NE(other(), nullptr);
  ASSERT_TRUE(window_->show_screen("budgets"));
  ASSERT_NE(window_->beside().other(), nullptr);
  EXPECT_EQ(window_->beside().other()->id(), "budgets");
  ASSERT_TRUE(window_->show_screen("comparison"));  // compares by itself
  EXPECT_EQ(window_->beside().other(), nullptr);
  ASSERT_TRUE(window_->show_screen("lazy"));
  ASSERT_NE(other(), nullptr);
  session().close_baseline();
  EXPECT_EQ(window_->beside().other(), nullptr);
  EXPECT_EQ(window_->beside().form(), Compare::off);
  EXPECT_FALSE(window_->beside().toggle(Compare::side_by_side));
}

}  // namespace
}  // namespace kvatlas::viewer
