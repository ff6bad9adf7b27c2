// SPDX-License-Identifier: Apache-2.0
#include "viewer/screens/blocks_screen.hpp"

#include <gmock/gmock.h>

#include "tests/gui/shown_screen.hpp"

namespace kvatlas::viewer {
namespace {

using testing::HasSubstr;
using testing_gui::grab_screenshots;
using testing_gui::ShownScreen;
using testing_gui::wait_until;
using Shown = ShownScreen<BlocksScreen>;

void expect_same(Shown& shown) {
  const profile::Reader reader(shown.small().profile_path());
  BlocksSettings settings = shown.choices().blocks;
  settings.length = shown.choices().length;
  const BlocksView wanted = blocks_view(
      read_blocks_model(reader, shown.session().profile()->positions({}), {}), settings);
  EXPECT_EQ(shown->view().blocks, wanted.blocks);
  EXPECT_EQ(shown->view().saved, wanted.saved);
  EXPECT_EQ(shown->view().batch, wanted.batch);
  EXPECT_EQ(shown->matrices_chart().chart().title, wanted.matrices.title);
}

TEST(BlocksScreen, HandlesKeysAndSwitches) {
  Shown shown;
  EXPECT_EQ(shown->message(), QString());
  expect_same(shown);
  grab_screenshots(*shown, shown.session(), "blocks-screen");
  shown.drag_handle(shown->sweep_chart(), Handle::similarity, {200, 0});
  EXPECT_GT(shown.choices().blocks.delta, 0.5);
  expect_same(shown);
  EXPECT_EQ(shown.session().undo().count(), 1);
  shown.session().undo().undo();
  EXPECT_DOUBLE_EQ(shown.choices().blocks.delta, 0.5);
  shown->act(Act::handle_up_fast);
  EXPECT_NEAR(shown.choices().blocks.delta, 0.6, 1e-12);
  shown.control<QComboBox>("heads").setCurrentIndex(1);
  shown.control<QDoubleSpinBox>("memory").setValue(48);
  shown.settle();
  EXPECT_EQ(shown->matrices_chart().chart().matrices.size(), 4u);
  expect_same(shown);
  shown.control<QComboBox>("shown").setCurrentIndex(1);
  shown.settle();
  EXPECT_EQ(shown->matrices_chart().chart().matrices[0].unit, "divergence");
  EXPECT_DOUBLE_EQ(shown->matrices_chart().chart().marks[0].at, 0.4);
  // On the legend of divergences the line goes the other way.
  shown.drag_handle(shown->enlarged_chart(), Handle::divergence, {0, 20});
  EXPECT_GT(shown.choices().blocks.delta, 0.6);
}

TEST(BlocksScreen, WantedSavingIsReadOffByASecondHandle) {
  Shown shown;
  shown.control<QDoubleSpinBox>("wanted").setValue(7);
  shown.control<QCheckBox>("has_wanted").setChecked(true);
  shown.settle();
  EXPECT_NEAR(shown.choices().blocks.wanted_saving.value(), 0.07, 1e-12);
  ASSERT_TRUE(shown->view().delta_for_saving);
  shown.drag_handle(shown->sweep_chart(), Handle::wanted_saving, {0, -30});
  EXPECT_GT(*shown.choices().blocks.wanted_saving, 0.07);
  expect_same(shown);
}

TEST(BlocksScreen, TheEnlargedHeadFollowsTheSelection) {
  Shown shown;
  EXPECT_THAT(shown->enlarged_chart().chart().title, HasSubstr("KV head 0"));
  QTest::mouseClick(&shown->matrices_chart(), Qt::LeftButton, {},
                    shown->matrices_chart().cell_place(1, 2, 3));
  shown.settle();
  EXPECT_EQ(shown.session().selection().current().head, 2);  // the first of KV head 1
  EXPECT_EQ(shown.session().selection().current().layer, 2);
  EXPECT_THAT(shown->enlarged_chart().chart().title, HasSubstr("KV head 1"));
  // The small profile has no stored rows.
  QTest::mouseClick(&shown->enlarged_chart(), Qt::LeftButton, {},
                    shown->enlarged_chart().cell_place(0, 1, 2));
  ASSERT_TRUE(wait_until([&] {
    const auto& notes = shown->rows_chart().chart().notes;
    return !notes.empty() && notes.front().find("--map-samples") != std::string::npos;
  }));
}

TEST(BlocksScreen, ACellUnderThePointerShowsItsRowsUntilThePointerLeaves) {
  Shown shown;
  auto& enlarged = shown->enlarged_chart();
  const auto& tabs = *shown->findChild<QTabWidget*>();
  EXPECT_EQ(tabs.currentIndex(), 0);
  QTest::mouseMove(&enlarged, enlarged.cell_place(0, 1, 2));
  // Rows are asked for: the small profile has none.
  ASSERT_TRUE(wait_until([&] {
    const auto& notes = shown->rows_chart().chart().notes;
    return !notes.empty() && notes.front().find("--map-samples") != std::string::npos;
  }));
  EXPECT_EQ(tabs.currentIndex(), 2);
  EXPECT_THAT(enlarged.hover_text().toStdString(), HasSubstr("1 / 2"));
  QTest::mouseMove(&enlarged, {2, 2});
  EXPECT_EQ(tabs.currentIndex(), 0);
  // After a click the rows stay.
  QTest::mouseClick(&enlarged, Qt::LeftButton, {}, enlarged.cell_place(0, 1, 2));
  EXPECT_EQ(tabs.currentIndex(), 2);
  QTest::mouseMove(&enlarged, {2, 2});
  EXPECT_EQ(tabs.currentIndex(), 2);
}

TEST(BlocksScreen, TheGateIsReadOnRequest) {
  Shown shown;
  shown.change([](Choices& choices) { choices.blocks.proximal = {16, 112}; });
  EXPECT_TRUE(shown->gate_chart().chart().lines.empty());
  QTest::mouseClick(&shown.control<QPushButton>("read_gate"), Qt::LeftButton);
  ASSERT_TRUE(wait_until([&] { return !shown->gate_chart().chart().lines.empty(); }));
  EXPECT_EQ(shown->gate_chart().chart().table.rows.size(), 101u);
}

TEST(BlocksScreen, SaysWhatTheProfileLacks) {
  Shown shown({.samples = 2, .js = false});
  EXPECT_THAT(shown->message().toStdString(), HasSubstr("--capture js"));
}

}  // namespace
}  // namespace kvatlas::viewer
