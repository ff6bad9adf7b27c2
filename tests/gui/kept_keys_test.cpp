// SPDX-License-Identifier: Apache-2.0
// The keys that policies keep, as the profile has them, on the maps and under the last rows.
#include <QComboBox>
#include <algorithm>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/gui/gui_support.hpp"
#include "tests/gui/map_profile.hpp"
#include "viewer/screens/map_overlays.hpp"
#include "viewer/screens/maps_screen.hpp"
#include "viewer/screens/rows_screen.hpp"

namespace kvatlas::viewer {
namespace {

using ::testing::StartsWith;
using testing_gui::wait_until;

class KeptKeys : public ::testing::Test {
 protected:
  KeptKeys() {
    testing_gui::write_map_profile(folder_.path() / "p.h5", {300}, true);
    testing_gui::open_and_wait(session_, {folder_.path() / "p.h5"});
  }
  /// Where the axis of selections has a label.
  int selection(const std::string& prefix) const {
    const auto labels = selection_labels(session_.profile()->header());
    const auto found = std::find_if(labels.begin(), labels.end(), [&](const std::string& label) {
      return label.starts_with(prefix);
    });
    EXPECT_NE(found, labels.end()) << prefix;
    return static_cast<int>(found - labels.begin());
  }

  testing_support::TemporaryFolder folder_;
  Session session_;
};

TEST_F(KeptKeys, AreMarkedBelowTheMap) {
  MapsScreen screen(session_, nullptr);
  screen.resize(1000, 660);
  screen.show();
  screen.act(Act::enter);
  auto* overlays = screen.findChild<MapOverlays*>();
  ASSERT_TRUE(overlays);
  const int lag = selection("lagkv:");
  overlays->set_kept_by(lag);
  ASSERT_TRUE(wait_until([&] { return !overlays->overlays().lanes.empty(); }));
  const KeptLane lane = overlays->overlays().lanes[0];
  EXPECT_THAT(lane.label, StartsWith("lagkv:"));
  const std::int64_t divisor = lag + 2;
  ASSERT_EQ(static_cast<std::int64_t>(lane.kept.size()), (299 / divisor) + 1);
  EXPECT_EQ(lane.kept[1], std::pair(divisor, divisor + 1));
  overlays->set_partitions(true);
  EXPECT_EQ(overlays->overlays().partitions, std::pair(std::int64_t{16}, std::int64_t{64}))
      << "of the profile's own selection";
  ASSERT_TRUE(wait_until([&] {
    return !screen.map().map().tiles().empty() && session_.profile()->loader().waiting() == 0;
  }));
  const QImage marked = screen.map().grab().toImage();
  overlays->set_partitions(false);
  const QImage unlined = screen.map().grab().toImage();
  EXPECT_NE(marked, unlined);
  overlays->set_kept_by(-1);
  EXPECT_TRUE(overlays->overlays().lanes.empty());
  EXPECT_NE(screen.map().grab().toImage(), unlined);
}

TEST_F(KeptKeys, OfASelectionLieUnderTheRows) {
  RowsScreen screen(session_, nullptr);
  screen.resize(1000, 660);
  screen.show();
  ASSERT_TRUE(wait_until([&] { return screen.settled() && !screen.table().rows.empty(); }));
  const auto lanes = [&] {
    std::set<std::string> labels;
    for (const auto& points : screen.lines_view().chart().points) labels.insert(points.label);
    return labels;
  };
  const auto before = lanes().size();
  for (auto* choice : screen.findChildren<QComboBox*>())
    if (choice->count() > 1 && choice->itemText(1).startsWith("dynamickv:"))
      choice->setCurrentIndex(1);
  ASSERT_TRUE(wait_until([&] { return screen.settled() && lanes().size() == before + 1; }));
  const auto& points = screen.lines_view().chart().points;
  const auto found = std::find_if(points.begin(), points.end(), [](const Points& series) {
    return series.label.starts_with("kept: dynamickv:");
  });
  ASSERT_NE(found, points.end());
  const std::int64_t divisor = selection("dynamickv:") + 2;
  for (const auto& point : found->points) EXPECT_EQ(std::lround(point.x) % divisor, 0) << point.x;
}

}  // namespace
}  // namespace kvatlas::viewer
