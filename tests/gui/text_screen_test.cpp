// SPDX-License-Identifier: Apache-2.0
#include "viewer/screens/text_screen.hpp"

#include <QComboBox>
#include <QLabel>
#include <QLineEdit>
#include <QSlider>
#include <QTest>
#include <fstream>
#include <functional>

#include <gmock/gmock.h>

#include "tests/gui/gui_support.hpp"
#include "tests/gui/map_profile.hpp"

namespace kvatlas::viewer {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing_gui::grab_screenshots;
using testing_gui::open_and_wait;
using testing_gui::wait_until;

constexpr std::int64_t kTokens = 240, kGenerated = 20;

/// Lines of three policies on two prompts, in four layers of two KV heads: the full cache, a window
/// that rolls, and one that selects other tokens in each head.
std::string kept_lines() {
  const std::vector<std::string> words = {"The ",   "keeper ", "of ", "the ", "north ", "gate ",
                                          "wrote ", "7",       "4",   "1",    " down",  ".\n"};
  std::string out;
  for (const char* id : {"first", "second"})
    for (const char* policy : {"full", "rolling", "selected"}) {
      json line = {{"id", id},
                   {"policy", policy},
                   {"tokens", std::vector<int>(kGenerated, 1)},
                   {"cache_lengths", {kTokens}},
                   {"prompt_tokens", kTokens},
                   {"cut_after", kTokens}};
      for (int i = 0; i < kGenerated; ++i) line["pieces"].push_back(words[i % words.size()]);
      if (line["policy"] == "full")
        for (int i = 0; i < kTokens; ++i) line["prompt_pieces"].push_back(words[i % words.size()]);
      const auto positions = [&](const std::function<json(int)>& of_head) {
        json all = json::array();
        for (int layer = 0; layer < 4; ++layer)
          all.push_back({of_head(2 * layer), of_head(2 * layer + 1)});
        return all;
      };
      if (line["policy"] == "full") {
        line["positions"] = positions([](int) { return json{{0, kTokens}}; });
      } else if (line["policy"] == "rolling") {
        const auto window = [&](std::int64_t read) {
          return positions([read](int) { return json{{0, 4}, {read - 60, read}}; });
        };
        line["positions"] = window(kTokens);
        for (std::int64_t read = kTokens + 1; read < kTokens + kGenerated; ++read)
          line["later_cuts"].push_back({{"after", read}, {"positions", window(read)}});
      } else {
        line["positions"] = positions([](int head) {
          json ranges = json::array();
          for (int i = head; i + 2 < kTokens; i += 6 + head) ranges.push_back({i, i + 3});
          return ranges;
        });
      }
      out += line.dump() + "\n";
    }
  return out;
}

TEST(TextScreen, WhatTwoPoliciesKeep) {
  Session session;
  TextScreen screen(session, nullptr);
  screen.resize(1280, 720);
  screen.show();
  EXPECT_THAT(screen.message().toStdString(), HasSubstr("kvatlas evaluate --generations"));

  testing_support::TemporaryFolder folder;
  std::ofstream(folder.path() / "kept.jsonl") << kept_lines();
  open_and_wait(session, {folder.path() / "kept.jsonl"});
  ASSERT_TRUE(wait_until([&] { return screen.settled() && screen.message().isEmpty(); }));
  // The full cache keeps everything: the first policy is shown.
  EXPECT_THAT(screen.text(0).text().title, HasSubstr("rolling"));
  EXPECT_EQ(screen.text(0).text().tokens.size(), 240u);
  EXPECT_TRUE(screen.text(1).isHidden());
  auto* beside = screen.findChild<QComboBox*>("second");
  beside->setCurrentIndex(3);
  ASSERT_TRUE(wait_until([&] { return screen.settled() && !screen.text(1).isHidden(); }));
  EXPECT_EQ(screen.shares_chart().chart().matrices.size(), 2u);
  EXPECT_EQ(screen.table().columns.size(), 5u);
  grab_screenshots(screen, session, "text-screen-two");

  // While tokens are generated the window moves on.
  auto* slider = screen.findChild<QSlider*>("read");
  EXPECT_EQ(slider->maximum(), 19);
  slider->setValue(10);
  ASSERT_TRUE(wait_until([&] { return screen.text(0).text().tokens.size() == 250; }));
  EXPECT_EQ(screen.text(0).text().tokens[185].value, 0);
  EXPECT_EQ(screen.text(0).text().tokens[249].value, 1);
  EXPECT_TRUE(screen.act(Act::handle_down));
  ASSERT_TRUE(wait_until([&] { return screen.text(0).text().tokens.size() == 249; }));
  EXPECT_EQ(slider->value(), 9);

  // A cell chooses a head.
  QTest::mouseClick(&screen.shares_chart(), Qt::LeftButton, {},
                    screen.shares_chart().cell_place(1, 2, 1));
  ASSERT_TRUE(wait_until([&] { return screen.text(1).text().tokens[4].value == 0; }));
  EXPECT_THAT(screen.text(1).text().title, HasSubstr("layer 2, KV head 1"));
  EXPECT_TRUE(screen.text(1).text().tokens[5].apart);

  // A token that is clicked is told, in both.
  QTest::mouseClick(screen.text(1).viewport(), Qt::LeftButton, {}, screen.text(1).place_of(5));
  EXPECT_EQ(screen.text(0).chosen(), 5u);
  EXPECT_THAT(screen.focus_text().toStdString(), HasSubstr("token 5 “gate ”: 100.0 %"));

  // Words are found across tokens, round the end.
  auto* find = screen.findChild<QLineEdit*>("find");
  EXPECT_TRUE(screen.act(Act::filter));
  QTest::keyClicks(find, "741 down");
  EXPECT_EQ(screen.findChild<QLabel*>("found")->text(), "20 place(s)");
  QTest::keyClick(find, Qt::Key_Return);
  EXPECT_EQ(screen.text(0).chosen(), 7u);
  QTest::keyClick(find, Qt::Key_Return, Qt::ShiftModifier);
  grab_screenshots(screen, session, "text-screen-found");
  EXPECT_TRUE(screen.act(Act::escape));
  EXPECT_TRUE(find->text().isEmpty());
  EXPECT_TRUE(screen.act(Act::escape));  // all heads again
  ASSERT_TRUE(wait_until([&] { return screen.text(1).text().tokens[4].value > 0; }));
  EXPECT_FALSE(screen.act(Act::escape));

  screen.findChild<QComboBox*>("prompt")->setCurrentIndex(1);
  ASSERT_TRUE(wait_until([&] { return screen.settled() && slider->value() == 0; }));
  EXPECT_THAT(screen.shares_chart().chart().title, HasSubstr("second"));
  EXPECT_NE(screen.picture(), nullptr);
}

TEST(TextScreen, AttentionThatTheLastRowsGive) {
  testing_support::TemporaryFolder folder;
  testing_gui::write_map_profile(folder.path() / "p.h5", {700});
  Session session;
  open_and_wait(session, {folder.path() / "p.h5"});
  TextScreen screen(session, nullptr);
  screen.resize(1280, 720);
  screen.show();
  ASSERT_TRUE(wait_until([&] { return screen.settled() && screen.message().isEmpty(); }));
  const auto& text = screen.text(0).text();
  EXPECT_EQ(text.tokens.size(), 700u);
  EXPECT_THAT(text.title, HasSubstr("L0.H0"));
  // Head 0 of layer 0 gives its first key 0.1 and a little; nothing else gets as much.
  EXPECT_GT(text.tokens[0].value, 0.1);
  EXPECT_TRUE(screen.shares_chart().isHidden());
  EXPECT_EQ(screen.table().rows.size(), 700u);
  grab_screenshots(screen, session, "text-screen-attended");
  // The key that is chosen is the same everywhere.
  QTest::mouseClick(screen.text(0).viewport(), Qt::LeftButton, {}, screen.text(0).place_of(3));
  EXPECT_EQ(session.selection().current().key, 3);
  Selection selection = session.selection().current();
  selection.key = 8;
  session.selection().set(selection);
  EXPECT_EQ(screen.text(0).chosen(), 8u);
  EXPECT_TRUE(screen.act(Act::right));
  EXPECT_EQ(session.selection().current().key, 9);
  selection.layer = 1;
  session.selection().set(selection);
  ASSERT_TRUE(
      wait_until([&] { return screen.text(0).text().title.find("L1.H0") != std::string::npos; }));

  // What a token reads: exact for the last rows, blocks of the map for others.
  const auto title_is = [&](const std::string& words) {
    return wait_until([&] { return screen.text(0).text().title.find(words) != std::string::npos; });
  };
  auto* reads = screen.findChild<QComboBox*>("reads");
  ASSERT_NE(reads, nullptr);
  reads->setCurrentIndex(1);
  EXPECT_TRUE(title_is("What token 699 reads, L1.H0"));
  screen.text(0).choose(3);
  QTest::mouseClick(screen.text(0).viewport(), Qt::LeftButton, {}, screen.text(0).place_of(3));
  EXPECT_EQ(session.selection().current().query, 3);
  EXPECT_TRUE(title_is("What tokens 2 to 3 read in the mean, by blocks of 2, L1.H0"));
  EXPECT_EQ(screen.text(0).text().tokens[4].value, 0);  // a token that comes after it
}

TEST(TextFlow, LinesBreakBetweenWords) {
  ShownText text;
  for (const char* piece : {"some", " w", "ord", "s", " bro", "ken"})
    text.tokens.push_back({piece});
  text.prompt_tokens = text.tokens.size();
  const QFont font("DejaVu Sans", 10);
  const QFontMetricsF metrics(font);
  TextFlow flow;
  // Room for "some words bro".
  flow.set(text, font, metrics.horizontalAdvance("some words bro") + 3);
  EXPECT_EQ(flow.area_of(3).top(), 0);
  EXPECT_GT(flow.area_of(4).top(), 0);
  EXPECT_EQ(flow.area_of(4).left(), 0);
  EXPECT_EQ(flow.area_of(5).top(), flow.area_of(4).top());
  // A word that is longer than a line is cut.
  flow.set_width(metrics.horizontalAdvance(" w") + 3);
  EXPECT_GT(flow.area_of(2).top(), flow.area_of(1).top());
}

}  // namespace
}  // namespace kvatlas::viewer
