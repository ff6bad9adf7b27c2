// SPDX-License-Identifier: Apache-2.0
#include <QLabel>
#include <QSignalSpy>
#include <QTest>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/gui/gui_support.hpp"
#include "tests/gui/map_profile.hpp"
#include "viewer/frame/pin_tray.hpp"

namespace kvatlas::viewer {
namespace {

using ::testing::HasSubstr;
using testing_gui::wait_until;

Place map_place(std::int64_t layer, std::int64_t head) {
  Place place;
  place.screen = "maps";
  place.sample = 0;
  place.layer = layer;
  place.head = head;
  return place;
}

/// A tray beside an open profile with two pinned maps.
class Pins : public ::testing::Test {
 protected:
  Pins() {
    testing_gui::write_map_profile(folder_.path() / "p.h5", {700});
    write_sidecar({{{map_place(0, 1), "Attention maps"}, {map_place(2, 3), "Attention maps"}}, {}},
                  sidecar_path(folder_.path() / "p.h5"));
    tray_.resize(900, 190);
    tray_.show();
    testing_gui::open_and_wait(session_, {folder_.path() / "p.h5"});
  }
  bool live() {
    return wait_until([&] {
      return tray_.cards().size() == 2 &&
             std::all_of(tray_.cards().begin(), tray_.cards().end(), [](const PinCard* card) {
               return card->map() && !card->map()->map().sample().empty();
             });
    });
  }
  MapView& map(std::size_t i) { return *tray_.cards()[i]->map(); }

  testing_support::TemporaryFolder folder_;
  Session session_;
  PinTray tray_{session_, nullptr};
};

TEST_F(Pins, ThoseOfTheFileAreLiveMapsWithOneCursor) {
  ASSERT_TRUE(live());
  EXPECT_EQ(map(1).map().tiles()[0].key.map.layer, 2);
  EXPECT_EQ(map(1).map().tiles()[0].key.map.head, 3);
  const QPoint at = map(0).layout_now().map.topLeft().toPoint() + QPoint(20, 60);
  QTest::mouseMove(&map(0), at);
  const auto& viewport = map(0).viewport();
  const auto query = static_cast<std::int64_t>((at.y() - map(0).layout_now().map.top()) *
                                               viewport.tokens_per_pixel);
  for (std::size_t i : {0u, 1u})
    EXPECT_THAT(map(i).focus_text().toStdString(), HasSubstr("q " + std::to_string(query))) << i;
  testing_gui::grab_screenshots(tray_, session_, "pins");
  EXPECT_EQ(tray_.cards()[0]->sample_name(), "sample 0");
  const auto labels = tray_.cards()[0]->findChildren<QLabel*>();
  EXPECT_TRUE(std::any_of(labels.begin(), labels.end(),
                          [](const QLabel* label) { return label->text() == "sample 0"; }));
  emit map(0).hovered(-1, -1);
  EXPECT_EQ(map(1).focus_text(), "");
}

TEST_F(Pins, KeysGoToThePinInFocus) {
  ASSERT_TRUE(live());
  EXPECT_FALSE(tray_.act(Act::zoom_in));  // none is in focus
  tray_.activateWindow();
  map(1).setFocus();
  ASSERT_TRUE(wait_until([&] { return map(1).hasFocus(); }));
  const double before = map(1).viewport().tokens_per_pixel;
  EXPECT_TRUE(tray_.act(Act::zoom_in));
  EXPECT_LT(map(1).viewport().tokens_per_pixel, before);
  EXPECT_EQ(map(0).viewport().tokens_per_pixel, before);
  QSignalSpy wanted(&tray_, &PinTray::wanted);
  EXPECT_TRUE(tray_.act(Act::enter));
  ASSERT_EQ(wanted.count(), 1);
  EXPECT_EQ(wanted[0][0].value<Place>(), map_place(2, 3));
  QTest::keyClick(&map(1), Qt::Key_Delete);
  ASSERT_EQ(tray_.cards().size(), 1u);
  EXPECT_EQ(tray_.sidecar().pins[0].place, map_place(0, 1));
  EXPECT_TRUE(wait_until([&] { return map(0).hasFocus(); }));  // the next one
}

TEST_F(Pins, OthersThanMapsShowWhatTheyWere) {
  ASSERT_TRUE(live());
  Place lazy;
  lazy.screen = "lazy";
  tray_.pin(lazy, "Lazy layers", QImage(64, 48, QImage::Format_RGB32));
  Place gone = map_place(99, 0);  // the profile has no such layer
  tray_.pin(gone, "Attention maps", {});
  ASSERT_EQ(tray_.cards().size(), 4u);
  EXPECT_EQ(tray_.cards()[2]->map(), nullptr);
  EXPECT_EQ(tray_.cards()[3]->map(), nullptr);
}

}  // namespace
}  // namespace kvatlas::viewer
