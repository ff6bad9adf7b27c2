// SPDX-License-Identifier: Apache-2.0
#include "viewer/screens/needle_screen.hpp"

#include <QComboBox>

#include <gtest/gtest.h>

#include "tests/gui/gui_support.hpp"
#include "tests/support/measured.hpp"

namespace kvatlas::viewer {
namespace {

using namespace testing_gui;
using nlohmann::json;

json cells(double lost) {
  json out = json::array();
  for (const int length : {512, 1024, 2048})
    for (const double depth : {0.0, 0.25, 0.5, 0.75, 1.0})
      out.push_back({{"length", length},
                     {"depth", depth},
                     {"samples", 4},
                     {"score", 1 - lost * depth * (1 - depth) * length / 512},
                     {"digits_prefix", 1 - lost / 2},
                     {"digits_in_place", 1 - lost / 4}});
  return out;
}

TEST(NeedleScreen, MapsOfDocuments) {
  Session session;
  NeedleScreen screen(session, nullptr);
  screen.resize(1000, 600);
  screen.show();
  EXPECT_TRUE(screen.message().contains("kvatlas evaluate"));

  testing_support::TemporaryFolder folder;
  calibrate::Document document;
  document.model.layers = document.model.heads = document.model.kv_heads = 2;
  document.model.head_dim = 8;
  json section = calibrate::section_of(calibrate::LagKv{});
  section["measured"] = testing_support::measured_json(0.5, 0.6);
  section["measured"]["by_length_and_depth"] = cells(0.9);
  section["measured"]["full_by_length_and_depth"] = cells(0);
  document.sections["lagkv"] = section;
  calibrate::write_document(document, folder.path() / "policy.json", false);
  open_and_wait(session, {folder.path() / "policy.json"});
  ASSERT_TRUE(wait_until([&] { return screen.chart().chart().matrices.size() == 2; }));
  EXPECT_TRUE(screen.message().isEmpty());
  EXPECT_EQ(screen.table().rows.size(), 30u);
  grab_screenshots(screen, session, "needle");
  auto* score = screen.findChild<QComboBox*>("score");
  ASSERT_TRUE(score && score->isEnabled());
  score->setCurrentIndex(2);
  ASSERT_TRUE(wait_until([&] { return screen.chart().chart().matrices.back().at(2, 2) == 0.775; }));
  EXPECT_EQ(session.choices().sweep.score, ShownScore::digits_in_place);
  grab_screenshots(screen, session, "needle_digits");
  score->setCurrentIndex(0);
  ASSERT_TRUE(wait_until([&] { return screen.chart().chart().matrices.back().at(2, 2) < 0.7; }));
  EXPECT_TRUE(screen.act(Act::difference));
  ASSERT_TRUE(wait_until([&] { return screen.chart().chart().matrices.size() == 1; }));
  EXPECT_LT(screen.chart().chart().matrices.front().at(2, 2), 0);
}

}  // namespace
}  // namespace kvatlas::viewer
