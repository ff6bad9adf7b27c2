// SPDX-License-Identifier: Apache-2.0
// The front of a search in the window, and a search that the window starts.
#include <QCheckBox>
#include <QComboBox>
#include <QLabel>
#include <QLineEdit>
#include <QPlainTextEdit>
#include <QPushButton>
#include <QTest>
#include <fstream>

#include <gtest/gtest.h>

#include "calibrate/rules/policy_reports.hpp"
#include "tests/gui/gui_support.hpp"
#include "tests/support/front_document.hpp"
#include "viewer/frame/main_window.hpp"
#include "viewer/frame/search_dialog.hpp"
#include "viewer/screens/comparison_screen.hpp"

namespace kvatlas::viewer {
namespace {

namespace fs = std::filesystem;
using namespace testing_gui;

class Searching : public testing::Test {
 protected:
  void SetUp() override {
    document_ = testing_support::front_document(
        calibrate::model_info(small_.session().profile()->header()));
    window_ = std::make_unique<MainWindow>(
        session(), QString::fromStdString((small_.folder() / "v.ini").string()));
    window_->resize(1280, 720);
    window_->show();
    emit session().profile_changed();
  }

  Session& session() { return small_.session(); }
  MainWindow& window() { return *window_; }
  fs::path file(const char* name) const { return small_.folder() / name; }
  QString text(const char* name) const { return QString::fromStdString(file(name).string()); }

  /// The comparison with its front, once the document is open.
  ComparisonScreen* open_front() {
    calibrate::write_document(document_, file("auto.json"), true);
    open_and_wait(session(), {file("auto.json")});
    return front_screen();
  }
  ComparisonScreen* front_screen() {
    auto* screen = qobject_cast<ComparisonScreen*>(window().screen());
    if (!screen) return nullptr;
    EXPECT_TRUE(wait_until([&] { return !screen->view().pareto.points.empty(); }));
    return screen;
  }
  static bool choose(ComparisonScreen& screen, std::size_t point) {
    const auto& series = screen.view().series;
    for (std::size_t s = 0; s < series.size(); ++s)
      for (std::size_t i = 0; i < series[s].size(); ++i)
        if (series[s][i]->front_point && series[s][i]->front_point->point == point) {
          emit screen.pareto_chart().point_chosen(static_cast<int>(s), static_cast<int>(i));
          return true;
        }
    return false;
  }

  /// A program in the place of kvatlas: it keeps its words in a file, and does what `body` says.
  void use_program(const std::string& body) {
    const auto program = file("program");
    std::ofstream(program) << "#!/bin/sh\nprintf '%s\\n' \"$@\" > '" << file("words").string()
                           << "'\n"
                           << body << '\n';
    fs::permissions(program, fs::perms::owner_all);
    window().search().set_program(QString::fromStdString(program.string()));
  }
  SearchDialog& dialog() {
    window().actions()["file.search"]->trigger();
    return *window().findChild<SearchDialog*>();
  }
  template <class Control>
  Control& control(const char* name) {
    return *dialog().findChild<Control*>(name);
  }
  void fill(const char* model = "model.gguf") {
    control<QLineEdit>("model").setText(model);
    control<QLineEdit>("output").setText(text("found.json"));
  }
  void press(const char* button) {
    QTest::mouseClick(&control<QPushButton>(button), Qt::LeftButton);
  }
  QString state() { return control<QLabel>("state").text(); }

  SmallSession small_;
  calibrate::Document document_;
  std::unique_ptr<MainWindow> window_;
};

TEST_F(Searching, TheFrontOpensOnTheComparisonAndAPointBecomesThePolicy) {
  ASSERT_TRUE(window().show_screen("lazy"));
  ComparisonScreen* screen = open_front();
  ASSERT_NE(screen, nullptr);
  grab_screenshots(window(), session(), "front");
  ASSERT_TRUE(choose(*screen, 1));
  const auto& choices = session().choices();
  ASSERT_NE(choices.front.document, nullptr);
  EXPECT_EQ(choices.front.document->compose.size(), 2u);
  EXPECT_EQ(choices.lazy.threshold, 0.7);
  EXPECT_EQ(choices.budgets.budget, 64);
  EXPECT_TRUE(choices.lazy.fixed);

  // It is what is saved.
  window().actions()["file.save_policy"]->trigger();
  auto* save = window().findChild<PolicyDialog*>();
  ASSERT_NE(save, nullptr);
  EXPECT_TRUE(save->findChild<QComboBox*>("source")->currentText().contains("dynamickv"));
  save->findChild<QLineEdit*>("where")->setText(text("point.json"));
  ASSERT_TRUE(wait_until([&] { return save->is_settled(); }));
  QTest::mouseClick(save->findChild<QPushButton*>("write"), Qt::LeftButton);
  ASSERT_TRUE(wait_until([&] { return fs::exists(file("point.json")); }));
  const auto written = calibrate::read_document(file("point.json"));
  EXPECT_EQ(written.compose, (std::vector<std::string>{"simlayerkv", "dynamickv"}));
  EXPECT_EQ(written.pareto[1].at("chosen"), true);

  // Undone, and left by a setting made by hand.
  session().undo().undo();
  EXPECT_EQ(session().choices().front.document, nullptr);
  session().undo().redo();
  EXPECT_NE(session().choices().front.document, nullptr);
  ASSERT_TRUE(window().show_screen("lazy"));
  window().screen()->act(Act::handle_up);
  EXPECT_EQ(session().choices().front.document, nullptr);
}

TEST_F(Searching, ABrokenPointIsRefusedAndNothingChanges) {
  document_.pareto[1]["sections"]["dynamickv"]["result"]["budgets"] = {1, 2};
  ComparisonScreen* screen = open_front();
  ASSERT_NE(screen, nullptr);
  ASSERT_TRUE(choose(*screen, 1));
  EXPECT_EQ(session().choices().front.document, nullptr);
  ASSERT_FALSE(window().banners().texts().isEmpty());
  EXPECT_TRUE(window().banners().texts().last().contains("point 1 of the front"));
}

TEST_F(Searching, APlaceThatWasAskedForStays) {
  calibrate::write_document(document_, file("auto.json"), true);
  Session other;
  MainWindow second(other, text("w.ini"));
  second.open_all({text("p.h5"), text("auto.json")});
  Place place;
  place.screen = "budgets";
  second.go_to_when_open(place);
  ASSERT_TRUE(wait_until([&] { return !other.documents().empty(); }));
  EXPECT_EQ(second.screen()->id(), "budgets");
}

TEST_F(Searching, RunsTheProgramAndOpensWhatItFound) {
  calibrate::write_document(document_, file("ready.json"), true);
  use_program("echo 'kvatlas: stage 1: 3 policies' >&2; printf 'Chosen: lagkv'; cp '" +
              file("ready.json").string() + "' '" + file("found.json").string() + "'");
  EXPECT_FALSE(control<QPushButton>("start").isEnabled());
  EXPECT_TRUE(state().contains("which model"));
  fill();
  control<QComboBox>("runtime").setCurrentIndex(control<QComboBox>("runtime").findData("vllm"));
  ASSERT_TRUE(control<QPushButton>("start").isEnabled());
  grab_screenshots(dialog(), session(), "search");
  press("start");
  EXPECT_TRUE(window().search().is_running());
  EXPECT_FALSE(control<QPushButton>("start").isEnabled());
  ASSERT_TRUE(wait_until([&] { return !session().documents().empty(); }));
  const QString log = control<QPlainTextEdit>("log").toPlainText();
  EXPECT_TRUE(log.contains("stage 1"));
  EXPECT_TRUE(log.endsWith("Chosen: lagkv"));  // a last line without its end
  EXPECT_NE(front_screen(), nullptr);
  std::ifstream words(file("words"));
  const std::string said{std::istreambuf_iterator<char>(words), {}};
  EXPECT_NE(said.find("auto\n--model\nmodel.gguf\n--profile\n" + file("p.h5").string() +
                      "\n--kv-saving\n0.5\n"),
            std::string::npos)
      << said;
  EXPECT_NE(said.find("--for\nvllm\n"), std::string::npos);
  // The model is remembered; the file is there now and is not replaced unasked.
  EXPECT_FALSE(control<QPushButton>("start").isEnabled());
  EXPECT_TRUE(state().contains("is there already") || state().contains("Found"));
  control<QCheckBox>("replace").setChecked(true);
  EXPECT_TRUE(control<QPushButton>("start").isEnabled());
  MainWindow again(session(), text("v.ini"));
  again.actions()["file.search"]->trigger();
  EXPECT_EQ(again.findChild<SearchDialog*>()->request().model, "model.gguf");
}

TEST_F(Searching, StopsAndGoesOn) {
  use_program("trap 'touch \"" + file("found.trials.jsonl").string() +
              "\"; echo stopping; exit 130' TERM\necho ready\nwhile :; do sleep 0.05; done");
  fill();
  press("start");
  ASSERT_TRUE(
      wait_until([&] { return control<QPlainTextEdit>("log").toPlainText().contains("ready"); }));
  press("stop");
  ASSERT_TRUE(wait_until([&] { return !window().search().is_running(); }));
  EXPECT_TRUE(state().contains("can go on")) << state().toStdString();
  EXPECT_EQ(control<QPushButton>("start").text(), "Go on");
  use_program("exit 4");
  press("start");
  ASSERT_TRUE(wait_until([&] { return state().contains("Nothing meets"); }));
  std::ifstream words(file("words"));
  const std::string said{std::istreambuf_iterator<char>(words), {}};
  EXPECT_NE(said.find("--resume"), std::string::npos);
}

TEST_F(Searching, FailuresAreSaid) {
  fill();
  window().search().set_program(text("no-such-program"));
  press("start");
  ASSERT_TRUE(wait_until([&] { return state().contains("no-such-program cannot be run"); }));
  EXPECT_TRUE(control<QPushButton>("start").isEnabled());
  use_program("echo 'kvatlas: model.gguf: no such file' >&2; exit 3");
  press("start");
  ASSERT_TRUE(wait_until([&] { return state().contains("no such file"); }));
  EXPECT_TRUE(window().banners().texts().last().contains("no such file"));
  // One that is killed is no success.
  use_program("kill -9 $$");
  press("start");
  ASSERT_TRUE(wait_until([&] { return !window().search().is_running(); }));
  EXPECT_TRUE(state().contains("failed")) << state().toStdString();
  // Closing the window ends what runs.
  use_program("echo $$ > '" + file("pid").string() + "'; while :; do sleep 0.05; done");
  press("start");
  ASSERT_TRUE(wait_until([&] { return fs::exists(file("pid")); }));
  window_.reset();
  std::ifstream pid(file("pid"));
  std::string number;
  pid >> number;
  EXPECT_FALSE(fs::exists("/proc/" + number));
}

}  // namespace
}  // namespace kvatlas::viewer
