// SPDX-License-Identifier: Apache-2.0
#include <QApplication>
#include <QHelpEvent>
#include <QLabel>
#include <QScrollBar>
#include <QSignalSpy>
#include <QTest>
#include <QToolTip>
#include <QWheelEvent>
#include <cmath>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/gui/gui_support.hpp"
#include "tests/gui/map_profile.hpp"
#include "tests/unit/viewer_maps/fake_tile_source.hpp"
#include "viewer/screens/map_overlays.hpp"
#include "viewer/screens/maps_screen.hpp"

namespace kvatlas::viewer {
namespace {

using ::testing::HasSubstr;
using testing_gui::wait_until;
using testing_tiles::FakeControl;

/// Maps of 8192 tokens in tiles of 256 cells, whose value tells their tile.
class WideTileSource : public testing_tiles::FakeTileSource {
 public:
  explicit WideTileSource(FakeControl& control) : FakeTileSource(control) {}
  Tile read(const TileKey& key) override {
    FakeTileSource::read(key);
    const std::int64_t side = std::min(kTileSide, levels(0)[key.level].side);
    Tile tile{side, side, std::vector<float>(static_cast<std::size_t>(side * side))};
    for (std::int64_t row = 0; row < side; ++row)
      for (std::int64_t column = 0; column < side; ++column)
        tile.values[row * side + column] =
            1.0F / static_cast<float>(1 + (row + column) % 50 + key.row + key.column);
    return tile;
  }
};

void drag(QWidget& on, QPoint from, QPoint by, Qt::KeyboardModifiers modifiers = {}) {
  QTest::mousePress(&on, Qt::LeftButton, modifiers, from);
  QTest::mouseMove(&on, from + by);
  QTest::mouseRelease(&on, Qt::LeftButton, modifiers, from + by);
}

/// A view on a fake source's maps, in a profile of 4 layers and 4 heads.
class MapViewTest : public ::testing::Test {
 protected:
  MapViewTest() {
    testing_gui::write_map_profile(folder_.path() / "p.h5", {8192});
    profile_ = std::make_unique<OpenedProfile>(
        folder_.path() / "p.h5", std::make_shared<profile::Reader>(folder_.path() / "p.h5"),
        std::make_unique<WideTileSource>(control_));
    view_.resize(900, 640);
    view_.show();
  }
  void show(std::int64_t layer = 1, std::int64_t head = 2) {
    view_.set_subject({"map", {profile_.get(), {{0, layer, head}}}, {}, {}});
  }
  bool settled() {
    return wait_until([&] {
      return profile_->loader().waiting() == 0 && !view_.map().tiles().empty() &&
             std::all_of(view_.map().tiles().begin(), view_.map().tiles().end(),
                         [](const PlacedTile& placed) {
                           return placed.failed || (placed.tile && placed.key == placed.slot);
                         });
    });
  }
  QPoint middle() const { return view_.layout_now().map.center().toPoint(); }
  /// Of the greatest value, on the legend.
  QPoint high_handle() const {
    const auto legend = view_.layout_now().legend_bar;
    const double y =
        legend_place(legend, legend_scale(view_.map()), view_.map().scale().range().high);
    return {static_cast<int>(legend.center().x()), static_cast<int>(y)};
  }
  void wheel(int steps, QPointF at) {
    QWheelEvent event(at, view_.mapToGlobal(at), {}, {0, 120 * steps}, Qt::NoButton, {},
                      Qt::NoScrollPhase, false);
    QApplication::sendEvent(&view_, &event);
  }
  double token_under(QPointF at) const {
    return view_.viewport().first_key +
           (at.x() - view_.layout_now().map.left()) * view_.viewport().tokens_per_pixel;
  }

  testing_support::TemporaryFolder folder_;
  FakeControl control_;
  std::unique_ptr<OpenedProfile> profile_;
  MapView view_;
};

TEST_F(MapViewTest, WholeMapIsReadOnceAndFits) {
  show();
  ASSERT_TRUE(settled());
  const auto& viewport = view_.viewport();
  EXPECT_NEAR(viewport.tokens_per_pixel * std::min(viewport.width, viewport.height), 8192, 1);
  const auto reads = control_.reads();
  const std::set<std::pair<std::int64_t, std::pair<std::int64_t, std::int64_t>>> distinct = [&] {
    std::set<std::pair<std::int64_t, std::pair<std::int64_t, std::int64_t>>> keys;
    for (const auto& key : reads) keys.insert({key.level, {key.row, key.column}});
    return keys;
  }();
  EXPECT_EQ(distinct.size(), reads.size());
  // A pixel is 15 tokens, a cell 8: ten tiles below the diagonal, after the small one that stood in
  // for them.
  ASSERT_EQ(reads.size(), 11u);
  EXPECT_EQ(reads.front().level, 7);
}

TEST_F(MapViewTest, CoarseTileStaysUntilTheFinerComes) {
  show();
  ASSERT_TRUE(settled());
  control_.hold();
  const auto before = control_.reads().size();
  wheel(6, middle());
  control_.wait_for_reads(before + 1);
  QCoreApplication::processEvents();
  for (const auto& placed : view_.map().tiles()) {
    EXPECT_NE(placed.tile, nullptr);
    EXPECT_GT(placed.key.level, placed.slot.level);
  }
  control_.release();
  ASSERT_TRUE(settled());
}

TEST_F(MapViewTest, WheelZoomsAboutThePointerWithinLimits) {
  show();
  ASSERT_TRUE(settled());
  const QPointF at = QPointF(middle()) + QPointF(-60, 90);
  const double before = view_.viewport().tokens_per_pixel;
  for (int i = 0; i < 6; ++i) wheel(1, at);
  const double token = token_under(at);
  wheel(1, at);
  EXPECT_NEAR(token_under(at), token, 1e-6);
  EXPECT_LT(view_.viewport().tokens_per_pixel, before);
  for (int i = 0; i < 60; ++i) wheel(1, at);
  EXPECT_NEAR(view_.viewport().tokens_per_pixel, 1.0 / 48, 1e-9);
  for (int i = 0; i < 80; ++i) wheel(-1, at);
  EXPECT_NEAR(view_.viewport().tokens_per_pixel, before, 1e-9);
  EXPECT_EQ(view_.viewport().first_key, 0);
}

TEST_F(MapViewTest, DragPansAndReadsTheNewTilesAlone) {
  show();
  ASSERT_TRUE(settled());
  view_.set_viewport({4096, 1024, 1, 0, 0});  // one token a pixel: 1024 px are four tiles
  ASSERT_TRUE(settled());
  const auto before = control_.reads().size();
  const double key = view_.viewport().first_key;
  QTest::mousePress(&view_, Qt::LeftButton, {}, middle());
  for (int x = 0; x <= 256; x += 32) QTest::mouseMove(&view_, middle() - QPoint(x, 0));
  QTest::mouseRelease(&view_, Qt::LeftButton, {}, middle() - QPoint(256, 0));
  EXPECT_NEAR(view_.viewport().first_key, key + 256, 1);
  ASSERT_TRUE(settled());
  ASSERT_TRUE(wait_until([&] { return profile_->loader().waiting() == 0; }));
  // One column of tiles more, with the ring above and below: the view is three tiles high.
  const auto after = control_.reads().size();
  EXPECT_GT(after, before);
  EXPECT_LE(after - before, 6u);
  for (std::size_t i = before; i < after; ++i) EXPECT_EQ(control_.reads()[i].level, 0);
  EXPECT_EQ(view_.focus_query(), -1);  // a drag is no click
}

TEST_F(MapViewTest, KeysPanZoomCentreAndFit) {
  show();
  ASSERT_TRUE(settled());
  for (int i = 0; i < 8; ++i) view_.act(Act::zoom_in);
  const Viewport before = view_.viewport();
  view_.act(Act::pan_right);
  view_.act(Act::pan_down);
  EXPECT_GT(view_.viewport().first_key, before.first_key);
  EXPECT_GT(view_.viewport().first_query, before.first_query);
  const TokenRectangle seen = view_.viewport().tokens();
  const std::int64_t query = seen.first_query + seen.queries / 2 + 100;
  view_.set_focus_cell(query, seen.first_key + 20);
  view_.act(Act::centre);
  const Viewport& centred = view_.viewport();
  EXPECT_NEAR(centred.first_query + centred.height * centred.tokens_per_pixel / 2,
              static_cast<double>(query), 1);
  view_.act(Act::centre);  // again: all of it
  EXPECT_EQ(view_.viewport().first_query, 0);
  EXPECT_NEAR(
      view_.viewport().tokens_per_pixel * std::min(view_.viewport().width, view_.viewport().height),
      8192, 1);
}

TEST_F(MapViewTest, ClickLocksAndArrowsMoveTheFocusedCell) {
  show();
  ASSERT_TRUE(settled());
  view_.set_viewport({4096, 1024, 1, 0, 0});
  ASSERT_TRUE(settled());
  QSignalSpy changed(&view_, &MapView::focus_changed);
  const QPoint at = view_.layout_now().map.topLeft().toPoint() + QPoint(100, 200);
  QTest::mouseClick(&view_, Qt::LeftButton, {}, at);
  ASSERT_EQ(changed.count(), 1);
  EXPECT_EQ(view_.focus_query(), 4296);
  EXPECT_EQ(view_.focus_key(), 1124);
  EXPECT_THAT(view_.accessibleDescription().toStdString(), HasSubstr("q 4296"));
  view_.act(Act::right);
  view_.act(Act::up);
  EXPECT_EQ(view_.focus_query(), 4295);
  EXPECT_EQ(view_.focus_key(), 1125);
  EXPECT_THAT(view_.focus_text().toStdString(), HasSubstr("rank"));
  // Shift adds tokens of the row and sums them.
  QTest::mouseClick(&view_, Qt::LeftButton, Qt::ShiftModifier, at + QPoint(40, 0));
  EXPECT_THAT(view_.focus_text().toStdString(), HasSubstr("2 chosen"));
  EXPECT_TRUE(view_.act(Act::escape));  // the added ones
  EXPECT_TRUE(view_.act(Act::escape));  // the focus
  EXPECT_EQ(view_.focus_query(), -1);
  EXPECT_FALSE(view_.act(Act::escape));
}

TEST_F(MapViewTest, RectangleHasItsStatistics) {
  show();
  ASSERT_TRUE(settled());
  view_.set_viewport({4096, 1024, 1, 0, 0});
  ASSERT_TRUE(settled());
  const QPoint at = view_.layout_now().map.topLeft().toPoint() + QPoint(100, 100);
  drag(view_, at, QPoint(49, 9), Qt::ControlModifier);
  const auto found = view_.region_statistics_here();
  ASSERT_TRUE(found);
  EXPECT_EQ(found->pairs, 500);
  EXPECT_EQ(found->missing, 0);
  EXPECT_THAT(view_.region_csv().toStdString(), HasSubstr("4196,10,1124,50,1,500"));
  // The greatest of a pair comes from the maxima, which are read while there is a rectangle.
  const auto reads_maxima = [&] {
    const auto reads = control_.reads();
    return std::any_of(reads.begin(), reads.end(),
                       [](const TileKey& key) { return key.map.reduction == Reduction::maximum; });
  };
  ASSERT_TRUE(wait_until([&] { return view_.region_statistics_here()->of_pairs; }));
  EXPECT_TRUE(reads_maxima());
  view_.act(Act::rectangle);
  EXPECT_FALSE(view_.region_statistics_here());
}

TEST_F(MapViewTest, RectangleSaysTheBlocksThatItSums) {
  show();
  ASSERT_TRUE(settled());
  ASSERT_EQ(view_.map().tiles().front().block, 8);
  view_.set_region(TokenRectangle{4100, 1001, 30, 10});
  EXPECT_THAT(view_.region_text().toStdString(),
              HasSubstr("queries 4096 to 4135, keys 1000 to 1015 (whole blocks of 8)"));
  EXPECT_THAT(view_.region_csv().toStdString(), HasSubstr("4096,40,1000,16,8,640"));
}

TEST_F(MapViewTest, ADifferenceIsNoFinerThanTheBaseline) {
  testing_gui::write_map_profile(folder_.path() / "b.h5", {1024});
  OpenedProfile coarse(folder_.path() / "b.h5",
                       std::make_shared<profile::Reader>(folder_.path() / "b.h5"));
  view_.set_subject({"difference", {profile_.get(), {{0, 1, 2}}}, {{{&coarse}, {{0, 1, 2}}}}, {}});
  view_.set_viewport({4096, 1024, 1, 0, 0});
  ASSERT_TRUE(settled());
  const auto side = coarse.loader().levels(0).front().side;
  EXPECT_LE(2 * 8192 / view_.map().tiles().front().block, 3 * side);
  view_.set_subject({});
}

TEST_F(MapViewTest, TokensHaveTheirTextsWhereThereIsRoom) {
  show();
  std::vector<std::string> texts;
  for (int token = 0; token < 8192; ++token) texts.push_back(str("word", token));
  view_.set_tokens(std::make_shared<const std::vector<std::string>>(texts));
  view_.set_viewport({4096, 1024, 1.0 / 24, 0, 0});
  ASSERT_TRUE(settled());
  const QImage with = view_.grab().toImage();
  view_.set_overlays({{}, {}, {}, false});
  EXPECT_NE(view_.grab().toImage(), with);
  view_.set_overlays({{}, {}, {}, true});
  EXPECT_EQ(view_.grab().toImage(), with);
}

TEST_F(MapViewTest, ADoubleClickZoomsAndOnTheLegendFreesTheRange) {
  show();
  ASSERT_TRUE(settled());
  // The small tile that stood in first has a 1; the range follows a moment after the others came.
  ASSERT_TRUE(wait_until([&] { return view_.map().scale().range().high < 1; }));
  const auto legend = view_.layout_now().legend_bar;
  const Range free = view_.map().scale().range();
  drag(view_, high_handle(), QPoint(0, 60));
  ASSERT_LT(view_.map().scale().range().high, free.high);
  QTest::mouseDClick(&view_, Qt::LeftButton, {}, legend.center().toPoint());
  EXPECT_EQ(view_.map().scale().range().high, free.high);  // that of what is in sight
  const double before = view_.viewport().tokens_per_pixel;
  QTest::mouseDClick(&view_, Qt::LeftButton, {}, middle());
  EXPECT_LT(view_.viewport().tokens_per_pixel, before);
}

TEST_F(MapViewTest, TheTableHasTheGreatestCellsOrTheFocusedRows) {
  show();
  ASSERT_TRUE(settled());
  view_.set_viewport({4096, 1024, 1, 0, 0});
  ASSERT_TRUE(settled());
  const Table all = view_.table();
  ASSERT_GT(all.rows.size(), 10u);
  const TokenRectangle seen = view_.viewport().tokens();
  for (std::size_t i = 1; i < all.rows.size(); ++i) {
    EXPECT_GE(all.rows[i - 1][3].number, all.rows[i][3].number);
    EXPECT_GE(all.rows[i][0].number, static_cast<double>(seen.first_query));
    EXPECT_LT(all.rows[i][1].number, static_cast<double>(seen.first_key + seen.keys));
  }
  view_.set_focus_cell(4200, 1100);
  const Table row = view_.table();
  ASSERT_FALSE(row.rows.empty());
  for (const auto& cells : row.rows) {
    EXPECT_LE(cells[0].number, 4200);
    EXPECT_GT(cells[0].number + cells[2].number, 4200);
  }
}

TEST_F(MapViewTest, DraggedRangeRequantisesWhatIsInSightAndStaysWhereLocked) {
  show();
  ASSERT_TRUE(settled());
  const Range before = view_.map().scale().range();
  const QPoint handle = high_handle();
  const auto quantised = view_.map().quantised();
  drag(view_, handle, QPoint(0, 60));
  const Range dragged = view_.map().scale().range();
  EXPECT_LT(dragged.high, before.high);
  EXPECT_EQ(dragged.low, before.low);
  EXPECT_EQ(view_.map().quantised() - quantised,
            static_cast<std::int64_t>(view_.map().tiles().size()));
  view_.set_locked(true);
  show(2, 3);
  ASSERT_TRUE(settled());
  EXPECT_EQ(view_.map().scale().range().high, dragged.high);
  view_.set_locked(false);
  EXPECT_NE(view_.map().scale().range().high, dragged.high);
  // Another theme is another palette: nothing is quantised again.
  const auto after = view_.map().quantised();
  Theme theme = make_theme(true, view_.font());
  theme.colours = ColourMap::magma;
  view_.set_theme(theme);
  view_.grab();
  EXPECT_EQ(view_.map().quantised(), after);
}

TEST_F(MapViewTest, FailedTileIsHatchedAndItsErrorTold) {
  control_.fail_at({{0, 1, 2}, 3, 1, 0});
  show();
  ASSERT_TRUE(settled());
  ASSERT_EQ(view_.map().tiles().size(), 10u);
  EXPECT_THAT(view_.failure().toStdString(), HasSubstr("chunk at [1, 0] is damaged"));
  int failed = 0;
  for (const auto& placed : view_.map().tiles()) failed += placed.failed ? 1 : 0;
  EXPECT_EQ(failed, 1);
  const auto reads = control_.reads().size();
  view_.act(Act::zoom_in);
  view_.act(Act::zoom_out);
  ASSERT_TRUE(settled());
  const auto all = control_.reads();  // what failed is not tried again and again
  EXPECT_EQ(std::count(all.begin() + static_cast<std::ptrdiff_t>(reads), all.end(),
                       TileKey{{0, 1, 2}, 3, 1, 0}),
            0);
}

TEST_F(MapViewTest, MeanOverHeadsReadsEachOfThem) {
  view_.set_subject({"mean", {profile_.get(), {{0, 1, 0}, {0, 1, 1}}}, {}, {}});
  ASSERT_TRUE(settled());
  std::set<std::int64_t> heads;
  for (const auto& key : control_.reads()) heads.insert(key.map.head);
  EXPECT_EQ(heads, (std::set<std::int64_t>{0, 1}));
}

TEST_F(MapViewTest, SaysThatThereIsNoSuchHead) {
  show(99, 0);
  EXPECT_THAT(view_.problem().toStdString(), HasSubstr("no layer 99"));
  view_.grab();
}

class HeadGridTest : public MapViewTest {
 protected:
  HeadGridTest() {
    grid_.resize(420, 260);
    grid_.show();
  }
  HeadGrid grid_;
};

TEST_F(HeadGridTest, ShrinksALittleWhereAllHeadsOfALayerFitThen) {
  grid_.set_maps(profile_.get(), 0, Reduction::mean);
  EXPECT_LT(grid_.thumbnail_size(), 64);
  EXPECT_GE(grid_.thumbnail_size(), 48);
  EXPECT_EQ(grid_.horizontalScrollBar()->maximum(), 0);
  grid_.choose(3, 0);
  grid_.resize(300, 260);  // too narrow for that
  EXPECT_EQ(grid_.thumbnail_size(), 64);
  grid_.resize(420, 260);
  EXPECT_LT(grid_.thumbnail_size(), 64);
  const auto seen = grid_.in_sight();
  EXPECT_NE(std::find(seen.begin(), seen.end(), Thumbnails::Head(3, 0)), seen.end());
  grid_.set_thumbnail_size(100);
  grid_.resize(430, 260);
  EXPECT_EQ(grid_.thumbnail_size(), 100);
}

TEST_F(HeadGridTest, ShowsTheHeadThatWasChosenBeforeItHadRoom) {
  grid_.hide();
  grid_.resize(100, 30);
  grid_.set_maps(profile_.get(), 0, Reduction::mean);
  grid_.choose(1, 0);
  grid_.resize(420, 160);
  grid_.show();
  const auto seen = grid_.in_sight();
  EXPECT_NE(std::find(seen.begin(), seen.end(), Thumbnails::Head(1, 0)), seen.end());
}

TEST_F(HeadGridTest, ReadsWhatIsInSightAndARing) {
  grid_.set_thumbnail_size(128);  // so that not all fit
  grid_.set_maps(profile_.get(), 0, Reduction::mean);
  // What was read has also come to the cache: between the two it may be asked for again.
  const auto idle = [&] {
    return grid_.is_loaded() && profile_->loader().waiting() == 0 &&
           profile_->cache().size() == control_.reads().size();
  };
  ASSERT_TRUE(wait_until(idle));
  const auto seen = grid_.in_sight();
  ASSERT_LT(seen.size(), 16u);
  const auto before = control_.reads();
  for (const auto& key : before) EXPECT_EQ(key.level, 7);  // 64 x 64
  EXPECT_GE(before.size(), seen.size());
  EXPECT_LT(before.size(), 16u);
  // The last row scrolls into sight.
  grid_.choose(3, 0);
  ASSERT_TRUE(wait_until(idle));
  const auto after = control_.reads();
  EXPECT_LE(after.size(), 16u);
  std::set<std::pair<std::int64_t, std::int64_t>> heads;
  for (const auto& key : after) heads.insert({key.map.layer, key.map.head});
  EXPECT_EQ(heads.size(), after.size());  // none is read twice
  EXPECT_TRUE(heads.contains({3, 0}));
}

TEST_F(HeadGridTest, ArrowsMoveAndReturnEnters) {
  grid_.set_maps(profile_.get(), 0, Reduction::mean);
  QSignalSpy entered(&grid_, &HeadGrid::entered);
  grid_.act(Act::down);
  grid_.act(Act::right);
  grid_.act(Act::right);
  EXPECT_EQ(grid_.layer(), 1);
  EXPECT_EQ(grid_.head(), 2);
  grid_.act(Act::up);
  grid_.act(Act::up);  // there is nothing above
  EXPECT_EQ(grid_.layer(), 0);
  grid_.act(Act::enter);
  ASSERT_EQ(entered.count(), 1);
  EXPECT_EQ(entered[0][1].toInt(), 2);
  grid_.set_order({{3, 3, 0.9}, {0, 2, 0.8}, {1, 1, 0.1}});
  EXPECT_EQ(grid_.layer(), 0);
  grid_.act(Act::left);
  EXPECT_EQ(grid_.layer(), 3);
}

TEST_F(HeadGridTest, TheMouseChoosesEntersAndIsTold) {
  grid_.set_maps(profile_.get(), 0, Reduction::mean);
  std::vector<LayerDecision> decisions(4);
  decisions[0].lazy = true;
  decisions[0].budget = 77;
  decisions[0].blocks = "1, 3";
  grid_.set_decisions(decisions);
  QSignalSpy chosen(&grid_, &HeadGrid::chosen), entered(&grid_, &HeadGrid::entered);
  const auto told_at = [&](QPoint place) {
    QToolTip::hideText();
    QHelpEvent event(QEvent::ToolTip, place, grid_.viewport()->mapToGlobal(place));
    QApplication::sendEvent(grid_.viewport(), &event);
    return QToolTip::text();
  };
  const auto place_of = [&](const char* head) {
    for (int y = 1; y < grid_.viewport()->height(); y += 8)
      for (int x = 1; x < grid_.viewport()->width(); x += 8)
        if (told_at({x, y}).startsWith(head)) return QPoint(x, y);
    return QPoint();
  };
  const QPoint at = place_of("L0.H1");
  ASSERT_FALSE(at.isNull());
  const QString told = told_at(at);
  for (const char* words : {"lazy at the present threshold", "77 tokens", "1, 3"})
    EXPECT_TRUE(told.contains(words)) << qPrintable(told);
  told_at({1, 1});
  EXPECT_TRUE(wait_until([] { return QToolTip::text().isEmpty(); }));
  QTest::mouseClick(grid_.viewport(), Qt::LeftButton, {}, at);
  ASSERT_EQ(chosen.count(), 1);
  EXPECT_EQ(grid_.head(), 1);
  QTest::mouseDClick(grid_.viewport(), Qt::LeftButton, {}, at);
  ASSERT_EQ(entered.count(), 1);
  EXPECT_EQ(entered[0][1].toInt(), 1);
  QTest::mouseClick(grid_.viewport(), Qt::LeftButton, {}, {1, 1});  // beside all heads
  EXPECT_EQ(grid_.head(), 1);
}

/// The screen on a profile with real maps.
class MapsScreenTest : public ::testing::Test {
 protected:
  MapsScreenTest() {
    testing_gui::write_map_profile(folder_.path() / "p.h5", {700, 700});
    testing_gui::open_and_wait(session_, {folder_.path() / "p.h5"});
    screen_ = std::make_unique<MapsScreen>(session_, nullptr);
    screen_->resize(1000, 660);
    screen_->show();
  }
  bool map_is_there() {
    return wait_until([&] {
      return !screen_->map().map().tiles().empty() && !screen_->map().map().sample().empty() &&
             session_.profile()->loader().waiting() == 0;
    });
  }

  testing_support::TemporaryFolder folder_;
  Session session_;
  std::unique_ptr<MapsScreen> screen_;
};

TEST_F(MapsScreenTest, GridThenMapThenBack) {
  ASSERT_TRUE(wait_until([&] { return screen_->grid().is_loaded(); }));
  EXPECT_FALSE(screen_->shows_map());
  EXPECT_NE(screen_->picture(), nullptr);
  EXPECT_EQ(screen_->table().rows.size(), 16u);
  screen_->act(Act::down);
  screen_->act(Act::right);
  EXPECT_EQ(session_.selection().current().layer, 1);
  EXPECT_EQ(session_.selection().current().head, 1);
  screen_->act(Act::enter);
  EXPECT_TRUE(screen_->shows_map());
  ASSERT_TRUE(map_is_there());
  EXPECT_THAT(screen_->picture()->title(), HasSubstr("Layer 1, head 1"));
  EXPECT_THAT(screen_->picture()->csv(), HasSubstr("first_query,first_key,block_tokens,attention"));
  testing_gui::grab_screenshots(*screen_, session_, "maps-one-head");
  screen_->act(Act::escape);
  EXPECT_FALSE(screen_->shows_map());
  testing_gui::grab_screenshots(*screen_, session_, "maps-grid");
}

TEST_F(MapsScreenTest, SelectionFromElsewhereIsFollowed) {
  screen_->act(Act::enter);
  Selection selection = session_.selection().current();
  selection.layer = 3;
  selection.head = 2;
  selection.query = 600;
  selection.key = 17;
  session_.selection().set(selection);
  ASSERT_TRUE(map_is_there());
  EXPECT_EQ(screen_->map().focus_query(), 600);
  EXPECT_THAT(screen_->focus_text().toStdString(), HasSubstr("L3.H2"));
  EXPECT_THAT(screen_->picture()->title(), HasSubstr("Layer 3, head 2"));
  screen_->act(Act::left);
  EXPECT_LT(session_.selection().current().key, 17);
}

TEST_F(MapsScreenTest, KeysForScaleSinksAndReduction) {
  screen_->act(Act::enter);
  ASSERT_TRUE(map_is_there());
  EXPECT_EQ(screen_->map().map().scale().kind(), ScaleKind::log);
  screen_->act(Act::next_scale);
  EXPECT_EQ(screen_->map().map().scale().kind(), ScaleKind::linear);
  const double high = screen_->map().map().scale().range().high;
  screen_->act(Act::mask_sinks);
  EXPECT_GT(screen_->map().map().settings().masked_keys, 0);
  EXPECT_NE(screen_->map().map().scale().range().high, high);
  screen_->act(Act::reduction);
  EXPECT_EQ(session_.selection().current().reduction, Reduction::maximum);
  ASSERT_TRUE(wait_until([&] {
    const auto& tiles = screen_->map().map().tiles();
    return !tiles.empty() && tiles[0].tile && tiles[0].key.map.reduction == Reduction::maximum;
  }));
}

TEST_F(MapsScreenTest, RowsByTheirGreatestAndTheGridsScale) {
  ASSERT_TRUE(wait_until([&] { return screen_->grid().is_loaded() && screen_->grid().range(); }));
  const QImage log = screen_->grid().grab().toImage();
  EXPECT_TRUE(screen_->act(Act::next_scale));
  ASSERT_TRUE(wait_until([&] { return screen_->grid().is_loaded() && screen_->grid().range(); }));
  EXPECT_NE(screen_->grid().grab().toImage(), log);
  screen_->act(Act::next_scale);
  ASSERT_TRUE(wait_until([&] { return screen_->grid().grab().toImage() == log; }));

  screen_->act(Act::enter);
  ASSERT_TRUE(map_is_there());
  auto& map = const_cast<MapView&>(screen_->map());
  const QImage before = map.grab().toImage();
  map.set_scale(ScaleKind::linear, true, 0);
  EXPECT_TRUE(map.map().settings().per_row);
  EXPECT_NE(map.grab().toImage(), before);
  map.act(Act::zoom_in);  // several tiles now share a row
  // The scale ends at a high quantile of what is in sight once its tiles are there: of shares of a
  // row's greatest near 1, of the weights themselves far below.
  EXPECT_TRUE(wait_until([&] { return map.map().scale().range().high < 1; }));
  EXPECT_GT(map.map().scale().range().high, 0.9);
  EXPECT_LE(map.map().sample().back(), 1);
}

TEST_F(MapViewTest, RectanglesByKeysAndEscape) {
  show();
  ASSERT_TRUE(settled());
  view_.act(Act::rectangle);  // the next drag marks one
  const QPoint at = view_.layout_now().map.topLeft().toPoint() + QPoint(80, 200);
  drag(view_, at, QPoint(-60, 100));
  EXPECT_FALSE(view_.region_csv().isEmpty());
  view_.act(Act::escape);
  EXPECT_TRUE(view_.region_csv().isEmpty());
  view_.set_focus_cell(5000, 1000);
  view_.act(Act::rectangle);  // about the focused cell
  ASSERT_FALSE(view_.region_csv().isEmpty());
  const double whole = view_.viewport().tokens_per_pixel;
  view_.act(Act::fit);  // the rectangle first, then everything
  EXPECT_LT(view_.viewport().tokens_per_pixel, whole);
  view_.act(Act::fit);
  EXPECT_EQ(view_.viewport().tokens_per_pixel, whole);
}

TEST_F(MapsScreenTest, OrdersHeadsByMeasures) {
  // Heads of the profile have a sink that grows with their number (map_profile.hpp).
  screen_->set_order(HeadOrder::By::sink);
  ASSERT_TRUE(wait_until([&] { return screen_->table().columns.size() > 4; }));
  screen_->grid().choose(0, 0);
  screen_->act(Act::left);
  screen_->act(Act::up);
  EXPECT_EQ(screen_->grid().layer() * 4 + screen_->grid().head() > 0, true);
  screen_->set_order(HeadOrder::By::index);
}

TEST_F(MapsScreenTest, MeanOverSaysSoInTheTitle) {
  screen_->act(Act::enter);
  screen_->set_mean_over(MeanOver::kv_group);
  ASSERT_TRUE(map_is_there());
  EXPECT_THAT(screen_->picture()->title(), HasSubstr("mean of the 2 heads of KV head 0"));
  screen_->set_mean_over(MeanOver::samples);
  ASSERT_TRUE(map_is_there());
  EXPECT_THAT(screen_->picture()->title(), HasSubstr("mean of the samples"));
}

TEST_F(MapsScreenTest, ZoomsToTheTokensThatAllScreensShow) {
  screen_->act(Act::enter);
  ASSERT_TRUE(map_is_there());
  const MapView& map = screen_->map();
  const auto keys_shown = [&] { return map.viewport().tokens_per_pixel * map.viewport().width; };
  const double all = keys_shown();
  Selection selection = session_.selection().current();
  selection.tokens = {{100, 180}};
  session_.selection().set(selection);
  EXPECT_LT(keys_shown(), 0.5 * all);
  EXPECT_LE(map.viewport().first_key, 100);
  EXPECT_GE(map.viewport().first_key + keys_shown(), 180);
  selection.tokens.reset();
  session_.selection().set(selection);
  EXPECT_EQ(keys_shown(), all);
}

TEST_F(MapsScreenTest, OverlaysFollowTheSettings) {
  screen_->act(Act::enter);
  ASSERT_TRUE(map_is_there());
  auto* overlays = screen_->findChild<MapOverlays*>();
  ASSERT_TRUE(overlays);
  EXPECT_FALSE(overlays->overlays().window);
  overlays->set_window(true);
  auto shown = overlays->overlays();
  const auto keep = session_.choices().lazy_arrays.keep;
  EXPECT_EQ(shown.window, std::pair(keep.initial, keep.recent));
  ASSERT_EQ(shown.lanes.size(), 1u);
  EXPECT_EQ(shown.lanes[0].label, "if lazy");  // the profile has no masses
  const std::vector<std::pair<std::int64_t, std::int64_t>> ends = {
      {0, keep.initial}, {std::max(keep.initial, 700 - keep.recent), 700}};
  EXPECT_EQ(shown.lanes[0].kept, ends);
  overlays->set_partitions(true);
  EXPECT_FALSE(overlays->overlays().partitions);  // neither a sweep nor LagKV among the selections
  overlays->set_token_texts(false);
  EXPECT_FALSE(overlays->overlays().token_texts);
  QSignalSpy said(&session_, &Session::message);
  overlays->set_kept_by(0);
  ASSERT_TRUE(wait_until([&] { return !said.empty(); }));
  EXPECT_TRUE(said[0][0].toString().contains("--capture kept,maps"))
      << qPrintable(said[0][0].toString());
  overlays->set_window(false);
  EXPECT_TRUE(overlays->overlays().lanes.empty());
}

TEST_F(MapsScreenTest, BaselineBesideAsDifferenceAndSwiped) {
  testing_gui::write_map_profile(folder_.path() / "b.h5", {500});
  screen_->act(Act::enter);
  screen_->act(Act::difference);
  EXPECT_EQ(screen_->compare(), Compare::off);  // there is no baseline yet
  testing_gui::open_and_wait(session_, {folder_.path() / "b.h5"}, true);
  screen_->act(Act::beside);
  ASSERT_EQ(screen_->compare(), Compare::side_by_side);
  screen_->act(Act::difference);
  ASSERT_EQ(screen_->compare(), Compare::difference);
  ASSERT_TRUE(map_is_there());
  const Range range = screen_->map().map().scale().range();
  EXPECT_EQ(range.low, -range.high);
  EXPECT_TRUE(screen_->map().is_relative());
  screen_->act(Act::swipe);
  EXPECT_EQ(screen_->compare(), Compare::swipe);
  ASSERT_TRUE(map_is_there());
  auto& swiped = const_cast<MapView&>(screen_->map());
  const QRectF area = swiped.layout_now().map;
  const QPoint line = QPointF(area.left() + area.width() / 4, area.center().y()).toPoint();
  const QImage half = swiped.grab().toImage();
  drag(swiped, line, QPoint(200, 0));
  EXPECT_NE(swiped.grab().toImage(), half);
  // A cell right of the line is the baseline's, with its own place there.
  swiped.set_focus_cell(690, 20);
  EXPECT_FALSE(swiped.focus_text().contains("baseline")) << qPrintable(swiped.focus_text());
  swiped.set_focus_cell(690, 600);
  EXPECT_TRUE(swiped.focus_text().contains("baseline · q 493 · k 428 · "))
      << qPrintable(swiped.focus_text());
  swiped.set_focus_cell(-1, -1);
  testing_gui::grab_screenshots(*screen_, session_, "maps-swipe");
  screen_->act(Act::swipe);
  EXPECT_EQ(screen_->compare(), Compare::off);
  screen_->set_compare(Compare::side_by_side);
  ASSERT_TRUE(map_is_there());
  EXPECT_TRUE(screen_->baseline_map().isVisible());
  for (int i = 0; i < 6; ++i) screen_->map().act(Act::zoom_in);
  // The same part of both, by relative position.
  const auto& a = screen_->map().viewport();
  const auto& b = screen_->baseline_map().viewport();
  EXPECT_NEAR(a.first_query / 700, b.first_query / 500, 0.02);
  ASSERT_TRUE(wait_until([&] {
    return screen_->baseline_map().map().scale().range().high ==
           screen_->map().map().scale().range().high;
  }));
  session_.close_baseline();
  EXPECT_EQ(screen_->compare(), Compare::off);
  EXPECT_FALSE(screen_->baseline_map().isVisible());
}

TEST_F(MapsScreenTest, GridLessTheBaselinesIsCentredOnZero) {
  testing_gui::write_map_profile(folder_.path() / "b.h5", {500});
  screen_->act(Act::difference);
  EXPECT_FALSE(screen_->grid().is_difference());  // there is no baseline yet
  ASSERT_TRUE(wait_until([&] { return screen_->grid().is_loaded(); }));
  const Range before = *screen_->grid().range();
  testing_gui::open_and_wait(session_, {folder_.path() / "b.h5"}, true);
  screen_->act(Act::difference);
  ASSERT_TRUE(screen_->grid().is_difference());
  ASSERT_TRUE(wait_until([&] { return screen_->grid().is_loaded() && screen_->grid().range(); }));
  EXPECT_EQ(screen_->grid().range()->low, -screen_->grid().range()->high);
  EXPECT_THAT(screen_->picture()->title(), HasSubstr("less b.h5"));
  testing_gui::grab_screenshots(*screen_, session_, "maps-grid-difference");
  screen_->act(Act::difference);
  ASSERT_TRUE(wait_until([&] { return screen_->grid().range().has_value(); }));
  EXPECT_EQ(screen_->grid().range()->high, before.high);
  screen_->act(Act::difference);
  ASSERT_TRUE(wait_until([&] { return screen_->grid().range().has_value(); }));
  session_.close_baseline();
  EXPECT_FALSE(screen_->grid().is_difference());
  ASSERT_TRUE(wait_until([&] { return screen_->grid().range().has_value(); }));
  EXPECT_EQ(screen_->grid().range()->high, before.high);  // and not that of differences
}

TEST(MapsScreen, WithoutMapsSaysHowToRecordThem) {
  testing_gui::SmallSession small;
  MapsScreen screen(small.session(), nullptr);
  screen.show();
  EXPECT_EQ(screen.picture(), nullptr);
  EXPECT_FALSE(screen.act(Act::enter));
  bool told = false;
  for (const auto* label : screen.findChildren<QLabel*>())
    told = told || label->text().contains("--map-samples");
  EXPECT_TRUE(told);
}

}  // namespace
}  // namespace kvatlas::viewer
