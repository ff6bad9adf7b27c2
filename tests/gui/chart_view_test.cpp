// SPDX-License-Identifier: Apache-2.0
#include "viewer/draw/chart_view.hpp"

#include <QSignalSpy>
#include <QTest>

#include <gtest/gtest.h>

#include "tests/gui/sample_charts.hpp"
#include "viewer/draw/chart_layout_impl.hpp"

namespace kvatlas::viewer {
namespace {

using testing_gui::layers_chart;
using testing_gui::matrices_chart;

/// Shown, with the focus, as large as in a window.
class ShownChart {
 public:
  explicit ShownChart(const Chart& chart, const QSize& size = {800, 500}) {
    view.resize(size);
    view.set_chart(chart);
    view.show();
    EXPECT_TRUE(QTest::qWaitForWindowExposed(&view));
    view.activateWindow();
    view.setFocus();
  }
  void move(const QPoint& to) { QTest::mouseMove(&view, to); }
  void click(const QPoint& at) { QTest::mouseClick(&view, Qt::LeftButton, {}, at); }
  void key(Qt::Key key) { QTest::keyClick(&view, key); }
  ChartView view;
};

TEST(ChartView, HandlesSayWhereTheyAreDragged) {
  ShownChart shown(layers_chart());
  QSignalSpy moved(&shown.view, &ChartView::handle_moved);
  const QPoint grip = shown.view.handle_place(Handle::lazy_threshold);
  ASSERT_FALSE(grip.isNull());
  EXPECT_TRUE(shown.view.handle_place(Handle::gate_threshold).isNull());
  QTest::mousePress(&shown.view, Qt::LeftButton, {}, grip);
  QTest::mouseMove(&shown.view, grip - QPoint(0, 40));
  QTest::mouseRelease(&shown.view, Qt::LeftButton, {}, grip - QPoint(0, 80));
  ASSERT_EQ(moved.size(), 2);
  EXPECT_EQ(moved[0][0].value<Handle>(), Handle::lazy_threshold);
  const double halfway = moved[0][1].toDouble(), end = moved[1][1].toDouble();
  EXPECT_FALSE(moved[0][2].toBool());
  EXPECT_TRUE(moved[1][2].toBool());
  EXPECT_GT(halfway, 0.5);
  EXPECT_NEAR(end - 0.5, 2 * (halfway - 0.5), 0.004);  // a pixel
  // Never beyond the axis.
  QTest::mousePress(&shown.view, Qt::LeftButton, {}, grip);
  QTest::mouseRelease(&shown.view, Qt::LeftButton, {}, QPoint(grip.x(), 0));
  EXPECT_EQ(moved.back()[1].toDouble(), 1);
}

TEST(ChartView, ItsLeastHeightLeavesWhatIsDrawnRoom) {
  Chart wordy = layers_chart();
  for (int i = 0; i < 12; ++i)
    wordy.lines.push_back({"a line with a long name " + std::to_string(i), {{0, 1}, {1, 2}}});
  wordy.notes = std::vector<std::string>(
      3, "a note that goes on and on and needs several lines in a narrow window");
  const Theme theme = make_theme(false, QGuiApplication::font());
  for (const Chart& chart : {layers_chart(), matrices_chart(1, 30), matrices_chart(3, 30), wordy})
    for (const double width : {280.0, 460.0, 900.0}) {
      const double height = least_height(chart, theme, width);
      const ChartLayout layout = layout_of(chart, theme, {0, 0, width, height});
      EXPECT_GE(layout.has_plot ? layout.plot.height() : layout.matrices.height(), 119) << width;
      EXPECT_LT(height, 600) << width;
    }
}

TEST(ChartView, AHandleFollowsTheNewChart) {
  ShownChart shown(layers_chart());
  const int before = shown.view.handle_place(Handle::lazy_threshold).y();
  Chart chart = layers_chart();
  chart.marks[0].at = 0.75;
  shown.view.set_chart(chart);
  EXPECT_LT(shown.view.handle_place(Handle::lazy_threshold).y(), before);
}

TEST(ChartView, ADraggedHandleIsKnownByItsIdWhateverMarksComeBeforeIt) {
  ShownChart shown(layers_chart());
  QSignalSpy moved(&shown.view, &ChartView::handle_moved);
  const QPoint grip = shown.view.handle_place(Handle::lazy_threshold);
  QTest::mousePress(&shown.view, Qt::LeftButton, {}, grip);
  Chart chart = layers_chart();
  chart.marks.insert(chart.marks.begin(), {"threshold", 2, true, Handle::lazy_share});
  shown.view.set_chart(chart);
  QTest::mouseMove(&shown.view, grip - QPoint(0, 40));
  ASSERT_EQ(moved.size(), 1);
  EXPECT_EQ(moved[0][0].value<Handle>(), Handle::lazy_threshold);
  EXPECT_GT(moved[0][1].toDouble(), 0.5);
  EXPECT_LT(moved[0][1].toDouble(), 1);
}

TEST(ChartView, TheHandleOfMatricesIsOnTheirLegend) {
  ShownChart shown(matrices_chart(3, 6));
  QSignalSpy moved(&shown.view, &ChartView::handle_moved);
  const QPoint grip = shown.view.handle_place(Handle::similarity);
  QTest::mousePress(&shown.view, Qt::LeftButton, {}, grip);
  QTest::mouseRelease(&shown.view, Qt::LeftButton, {}, grip + QPoint(0, 2000));
  ASSERT_EQ(moved.size(), 1);
  EXPECT_EQ(moved[0][1].toDouble(), 0);
}

TEST(ChartView, HoveringTellsLabelValueAndInterval) {
  ShownChart shown(layers_chart());
  shown.move(shown.view.point_place(0, 1));
  EXPECT_EQ(shown.view.hover_text(), "samples: sample 1, layer 1, mass 0.35 (0.25 to 0.45)");
  shown.move(shown.view.point_place(1, 3));  // lines follow points
  EXPECT_EQ(shown.view.hover_text(), "kept: layer 3, tokens 60");
  shown.move({3, 3});
  EXPECT_EQ(shown.view.hover_text(), "");
}

TEST(ChartView, ALegendOfManyNamesStandsBesideTheCurves) {
  Chart chart;
  chart.title = "KV cache held while generating";
  chart.x = {"generated tokens", ""};
  chart.y = {"held", "MiB"};
  for (int i = 0; i < 20; ++i)
    chart.lines.push_back({"Policy of a long name, budget " + std::to_string(100 + i),
                           {{0, static_cast<double>(i)}, {32, static_cast<double>(i + 1)}}});
  ShownChart shown(chart, {400, 260});
  const QPoint lowest = shown.view.point_place(0, 0), highest = shown.view.point_place(19, 1);
  EXPECT_GT(lowest.y() - highest.y(), 110);
  EXPECT_GT(highest.x() - lowest.x(), 150);
  // Names that are cut short are told in full.
  shown.move({highest.x() + 60, 45});
  EXPECT_EQ(shown.view.hover_text(), "Policy of a long name, budget 100");
  const QString rest = "Policy of a long name, budget 117; Policy of a long name, budget 119";
  bool told = false;
  for (int y = 45; y < 250; y += 5) {
    shown.move({highest.x() + 60, y});
    told = told || shown.view.hover_text().endsWith(rest);
  }
  EXPECT_TRUE(told);
}

TEST(ChartView, NamesOfRowsAreCutShortAndToldInFull) {
  const std::string name = "a policy of a name that is far too long for the strip, tokens";
  Chart chart;
  chart.matrices.push_back({"kept", "share", {name, "b"}, {"0", "1", "2"}, {1, 0, 0, 0, 1, 0}});
  ShownChart shown(chart, {430, 260});
  const QPoint cell = shown.view.cell_place(0, 0, 0);
  EXPECT_LT(cell.x(), 250);
  shown.move({20, cell.y()});
  EXPECT_EQ(shown.view.hover_text(), QString::fromStdString(name));
  shown.move({20, shown.view.cell_place(0, 1, 0).y()});
  EXPECT_EQ(shown.view.hover_text(), "");
}

TEST(ChartView, TokensAreNumbersInFull) {
  Chart chart = layers_chart();
  chart.x.range.reset();
  chart.lines[0].points = {{0, 1}, {131072, 50000.25}};
  chart.right->range.reset();
  ShownChart shown(chart);
  shown.move(shown.view.point_place(1, 1));
  EXPECT_EQ(shown.view.hover_text(), "kept: layer 131072, tokens 50000");
}

TEST(ChartView, HoveringAMatrixTellsTheCell) {
  Chart chart = matrices_chart(2, 4);
  chart.matrices[1].values[4 * 2 + 3] = kNoNumber;
  ShownChart shown(chart);
  shown.move(shown.view.cell_place(0, 1, 1));
  EXPECT_EQ(shown.view.hover_text(), "head 0: 1 / 1, 1 similarity");
  shown.move(shown.view.cell_place(1, 2, 3));
  EXPECT_EQ(shown.view.hover_text(), "head 1: 2 / 3, missing similarity");
}

TEST(ChartView, ClicksChoosePointsColumnsAndCells) {
  ShownChart shown(layers_chart());
  QSignalSpy points(&shown.view, &ChartView::point_chosen);
  QSignalSpy columns(&shown.view, &ChartView::column_chosen);
  shown.click(shown.view.point_place(0, 2));
  shown.click(shown.view.point_place(1, 1));
  ASSERT_EQ(points.size(), 2);
  EXPECT_EQ(points[0], (QVariantList{0, 2}));
  EXPECT_EQ(points[1], (QVariantList{1, 1}));
  EXPECT_EQ(columns.size(), 0);
  // The bar of layer 1, and the free ground of column 0 above everything.
  shown.click({shown.view.point_place(0, 1).x() + 40,
               shown.view.handle_place(Handle::lazy_threshold).y() + 150});
  shown.click({shown.view.point_place(0, 0).x(),
               shown.view.handle_place(Handle::lazy_threshold).y() - 130});
  ASSERT_EQ(columns.size(), 2);
  EXPECT_EQ(columns[0][0].toDouble(), 1);
  EXPECT_EQ(columns[1][0].toDouble(), 0);

  ShownChart matrices(matrices_chart(3, 5));
  QSignalSpy cells(&matrices.view, &ChartView::cell_chosen);
  matrices.click(matrices.view.cell_place(2, 4, 1));
  ASSERT_EQ(cells.size(), 1);
  EXPECT_EQ(cells[0], (QVariantList{2, 4, 1}));
}

TEST(ChartView, ArrowsWalkPointsAndAreAnnounced) {
  ShownChart shown(layers_chart());
  QSignalSpy points(&shown.view, &ChartView::point_chosen);
  EXPECT_EQ(shown.view.accessibleName(), "Masses <of> four layers & more");
  shown.key(Qt::Key_Right);
  EXPECT_EQ(shown.view.focus_text(), "samples: sample 0, layer 0, mass 0.2 (0.1 to 0.3)");
  shown.key(Qt::Key_Right);
  EXPECT_EQ(shown.view.accessibleDescription(),
            "samples: sample 1, layer 1, mass 0.35 (0.25 to 0.45)");
  shown.key(Qt::Key_Return);
  ASSERT_EQ(points.size(), 1);
  EXPECT_EQ(points[0], (QVariantList{0, 1}));
  shown.key(Qt::Key_Down);  // the next series, at the same layer
  EXPECT_EQ(shown.view.focus_text(), "kept: layer 1, tokens 80");
  shown.key(Qt::Key_Up);
  EXPECT_EQ(shown.view.focus_text(), "samples: sample 1, layer 1, mass 0.35 (0.25 to 0.45)");
  // The focus stays where series stay the same, and goes with them.
  Chart chart = layers_chart();
  chart.points[0].points[1].y = 0.4;
  shown.view.set_chart(chart);
  EXPECT_EQ(shown.view.focus_text(), "samples: sample 1, layer 1, mass 0.4 (0.25 to 0.45)");
  shown.view.set_chart(matrices_chart(1, 3));
  EXPECT_EQ(shown.view.focus_text(), "");
}

TEST(ChartView, ArrowsWalkCells) {
  ShownChart shown(matrices_chart(2, 3));
  QSignalSpy cells(&shown.view, &ChartView::cell_chosen);
  for (const auto key : {Qt::Key_Right, Qt::Key_Right, Qt::Key_Down, Qt::Key_Up, Qt::Key_Up})
    shown.key(key);
  ASSERT_EQ(cells.size(), 5);
  EXPECT_EQ(cells[0], (QVariantList{0, 0, 0}));
  EXPECT_EQ(cells[2], (QVariantList{0, 1, 1}));
  EXPECT_EQ(cells[4], (QVariantList{0, 0, 1}));  // not beyond the edge
  // Beyond the last column lies the next matrix.
  for (int i = 0; i < 3; ++i) shown.key(Qt::Key_Right);
  EXPECT_EQ(cells.back(), (QVariantList{1, 0, 1}));
  for (int i = 0; i < 2; ++i) shown.key(Qt::Key_Left);
  EXPECT_EQ(cells.back(), (QVariantList{0, 0, 2}));
}

TEST(ChartView, WhatIsInUseMayGo) {
  ShownChart cells(matrices_chart(1, 4));
  for (int i = 0; i < 3; ++i) cells.key(Qt::Key_Right);
  EXPECT_FALSE(cells.view.focus_text().isEmpty());
  QSignalSpy chosen(&cells.view, &ChartView::cell_chosen);
  cells.view.set_chart(matrices_chart(1, 2));  // the cell in focus is no more
  EXPECT_EQ(cells.view.focus_text(), "");
  cells.key(Qt::Key_Return);
  EXPECT_EQ(chosen.count(), 0);

  ShownChart marks(layers_chart());
  QSignalSpy moved(&marks.view, &ChartView::handle_moved);
  const QPoint handle = marks.view.handle_place(Handle::lazy_threshold);
  ASSERT_FALSE(handle.isNull());
  QTest::mousePress(&marks.view, Qt::LeftButton, {}, handle);
  Chart bare = layers_chart();
  bare.marks.clear();
  marks.view.set_chart(bare);
  marks.move(handle + QPoint(0, 20));
  QTest::mouseRelease(&marks.view, Qt::LeftButton, {}, handle);
  EXPECT_EQ(moved.count(), 0);
}

TEST(ChartView, BrushingIsAskedFor) {
  ShownChart shown(layers_chart());
  std::vector<std::pair<double, double>> ranges;
  QObject::connect(&shown.view, &ChartView::range_brushed,
                   [&](double first, double last) { ranges.emplace_back(first, last); });
  const QPoint from(shown.view.point_place(0, 1).x(),
                    shown.view.handle_place(Handle::lazy_threshold).y() - 100);
  const QPoint to(shown.view.point_place(0, 2).x(), from.y());
  const auto drag = [&] {
    QTest::mousePress(&shown.view, Qt::LeftButton, {}, to);
    QMouseEvent move(QEvent::MouseMove, from, shown.view.mapToGlobal(from), Qt::NoButton,
                     Qt::LeftButton, {});
    QCoreApplication::sendEvent(&shown.view, &move);
    QTest::mouseRelease(&shown.view, Qt::LeftButton, {}, from);
  };
  drag();
  EXPECT_TRUE(ranges.empty());
  shown.view.set_brushing(true);
  drag();
  ASSERT_EQ(ranges.size(), 1u);
  EXPECT_NEAR(ranges[0].first, 1, 0.02);
  EXPECT_NEAR(ranges[0].second, 2, 0.02);
  QTest::mousePress(&shown.view, Qt::LeftButton, {}, to);
  shown.key(Qt::Key_Escape);  // given up
  QTest::mouseRelease(&shown.view, Qt::LeftButton, {}, from);
  EXPECT_EQ(ranges.size(), 1u);
}

TEST(ChartView, ChartsWithoutNumbersAreDrawn) {
  Chart hollow = layers_chart();
  for (auto& point : hollow.points[0].points) point.y = kNoNumber;
  for (auto& point : hollow.lines[0].points) point.y = kNoNumber;
  for (auto& box : hollow.boxes) box = box_of(box.x, {kNoNumber});
  hollow.bars[0].bars[0].height = kNoNumber;
  hollow.y.range = {{1, 1}};
  Chart log = layers_chart();
  log.y.logarithmic = log.x.logarithmic = true;
  log.y.range.reset();
  log.x.range.reset();
  Chart odd = matrices_chart(2, 3);
  odd.matrices[0] = {"none", "", {}, {}, {}};
  odd.matrices[1].range = {1, 1};
  for (const Chart& chart : {Chart{}, hollow, log, odd}) {
    ShownChart shown(chart);
    for (const QSize& size : {QSize(800, 500), QSize(30, 20), QSize(1, 1)}) {
      shown.view.resize(size);
      EXPECT_FALSE(shown.view.grab().isNull());
      shown.move({10, 10});
      for (const auto key : {Qt::Key_Right, Qt::Key_Down, Qt::Key_Return, Qt::Key_Escape})
        shown.key(key);
    }
  }
}

}  // namespace
}  // namespace kvatlas::viewer
