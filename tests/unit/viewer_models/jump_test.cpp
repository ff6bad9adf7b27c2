// SPDX-License-Identifier: Apache-2.0
#include "viewer/models/jump.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "viewer/models/fuzzy.hpp"

namespace kvatlas::viewer {
namespace {

using testing::HasSubstr;

JumpContext context() {
  JumpContext context;
  context.layers = 30;
  context.heads = 9;
  context.tokens = 300;
  context.layer = 5;
  context.screens = {{"overview", "Overview"}, {"lazy", "Lazy layers"}, {"maps", "Attention maps"}};
  context.policies = {{"simlayerkv", "lazy"}, {"lagkv", "sweep"}};
  context.predicates = {{"lazy", {2, 4, 8}}, {"windowed", {}}};
  context.samples = {"passkey 1", "needle 2"};
  context.tasks = {"passkey", "needle"};
  context.token_texts = {"The", " pass", "key", " is", " 47", "11", "."};
  return context;
}

Jump first_of(const std::string& text) {
  const auto answer = find_jumps(text, context());
  EXPECT_EQ(answer.problem, "") << text;
  return answer.jumps.empty() ? Jump{} : answer.jumps.front();
}

TEST(Jump, Coordinates) {
  const Jump head = first_of("L12.H3");
  EXPECT_EQ(head.layer, 12);
  EXPECT_EQ(head.head, 3);
  EXPECT_FALSE(head.query);
  const Jump cell = first_of(" l12 q120 k17 ");
  EXPECT_EQ(cell.layer, 12);
  EXPECT_EQ(cell.query, 120);
  EXPECT_EQ(cell.key, 17);
  EXPECT_EQ(first_of("s1").sample, 1u);
  EXPECT_EQ(first_of("L29").layer, 29);
}

TEST(Jump, SaysWhatIsOutside) {
  EXPECT_THAT(find_jumps("L30", context()).problem,
              HasSubstr("no layer 30: the model has 30 (L0 to L29)"));
  EXPECT_THAT(find_jumps("q99999999999999999999", context()).problem, HasSubstr("no query token"));
  EXPECT_THAT(find_jumps("q5 k6", context()).problem, HasSubstr("does not see key token 6"));
  EXPECT_THAT(find_jumps("L0", JumpContext{}).problem, HasSubstr("no profile is open"));
}

TEST(Jump, LayersThatAreLazyBeginBehindTheChosenOne) {
  const auto answer = find_jumps("lazy", context());
  std::vector<std::int64_t> layers;
  for (const auto& jump : answer.jumps)
    if (jump.layer) layers.push_back(*jump.layer);
  EXPECT_EQ(layers, (std::vector<std::int64_t>{8, 2, 4}));
  // The screen of that name is offered too, first.
  EXPECT_EQ(answer.jumps.front().screen, "lazy");
  const auto others = find_jumps("not lazy", context()).jumps;
  ASSERT_EQ(others.size(), 27u);
  EXPECT_EQ(others.front().layer, 6);
  EXPECT_EQ(find_jumps("windowed", context()).problem, "No layer is windowed.");
}

TEST(Jump, NamesOfScreensPoliciesSamplesAndTasks) {
  EXPECT_EQ(first_of("attn maps").screen, "maps");
  EXPECT_EQ(first_of("overview").screen, "overview");
  EXPECT_EQ(first_of("simlayerkv").screen, "lazy");
  EXPECT_EQ(first_of("needle").task, "needle");
  EXPECT_EQ(first_of("needle 2").sample, 1u);
}

TEST(Jump, TextOfTokens) {
  const auto split = find_jumps("\"4711\"", context()).jumps;  // two tokens
  ASSERT_EQ(split.size(), 1u);
  EXPECT_EQ(split[0].key, 4);
  EXPECT_EQ(find_jumps("\"PASSkey\"", context()).jumps.at(0).key, 1);
  EXPECT_THAT(find_jumps("zzz", context()).problem, HasSubstr("Nothing is called 'zzz'"));
  auto without = context();
  without.token_texts.clear();
  EXPECT_THAT(find_jumps("zzz", without).problem, HasSubstr("holds no text of tokens"));
}

TEST(Jump, EmptyAndLongTexts) {
  EXPECT_TRUE(find_jumps("  ", context()).jumps.empty());
  EXPECT_EQ(find_jumps("  ", context()).problem, "");
  EXPECT_THAT(find_jumps(std::string(300, 'x'), context()).problem, HasSubstr("too long"));
}

TEST(Fuzzy, WordStartsAndRunsWin) {
  EXPECT_FALSE(fuzzy_score("xyz", "export view"));
  EXPECT_FALSE(fuzzy_score("we", "ew"));
  EXPECT_GT(*fuzzy_score("ev", "export view"), *fuzzy_score("ev", "seven"));
  EXPECT_GT(*fuzzy_score("exp", "export view"), *fuzzy_score("exp", "each example panel"));
  EXPECT_EQ(fuzzy_score("", "anything"), 0);
}

}  // namespace
}  // namespace kvatlas::viewer
