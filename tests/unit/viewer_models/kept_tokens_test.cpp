// SPDX-License-Identifier: Apache-2.0
#include "viewer/models/kept_tokens.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/error_of.hpp"

namespace kvatlas::viewer {
namespace {

using nlohmann::json;
using testing::DoubleEq;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

/// One layer of two KV heads and a prompt of four tokens; three were generated.
json line(const char* policy, const json& positions) {
  return {{"id", "a"},
          {"policy", policy},
          {"tokens", {5, 6, 7}},
          {"cache_lengths", {4}},
          {"prompt_tokens", 4},
          {"cut_after", 4},
          {"positions", positions},
          {"pieces", {"one ", "two\n", "three"}}};
}

json full_line() {
  json full = line("full", {{{{0, 4}}, {{0, 4}}}});
  full["prompt_pieces"] = {"Say ", "ONE", " two ", "three."};
  return full;
}

/// Keeps tokens 0 and 3 in one head and all in the other; later only what came last in the first.
json cut_line() {
  json cut = line("cut", {{{{0, 1}, {3, 4}}, {{0, 4}}}});
  cut["later_cuts"] = {{{"after", 6}, {"positions", {{{{3, 4}, {5, 6}}, {{0, 6}}}}}}};
  return cut;
}

KeptTokens kept_of(const std::vector<json>& lines) {
  std::string text;
  for (const auto& line : lines) text += line.dump() + "\n";
  return parse_kept_tokens(text, "kept.jsonl");
}

std::vector<double> values_of(const ShownText& text) {
  std::vector<double> values;
  for (const auto& token : text.tokens) values.push_back(token.value);
  return values;
}

TEST(KeptTokens, HeldFromTheCutOn) {
  const KeptTokens kept = kept_of({full_line(), cut_line()});
  ASSERT_EQ(kept.prompts.size(), 1u);
  EXPECT_EQ(kept.layers, 1);
  EXPECT_EQ(kept.kv_heads, 2);
  EXPECT_EQ(kept.prompts[0].most_read(), 6);
  const KeptRun& cut = kept.prompts[0].runs[1];
  EXPECT_THAT(shares_of_heads(cut, 4), ElementsAre(0.5, 1));
  EXPECT_THAT(shares_of_tokens(cut, 4, {}), ElementsAre(1, 0.5, 0.5, 1));
  EXPECT_THAT(shares_of_tokens(cut, 4, 0), ElementsAre(1, 0, 0, 1));
  // What is read is held too, until the next cut.
  EXPECT_THAT(shares_of_heads(cut, 5), ElementsAre(DoubleEq(3.0 / 5), 1));
  EXPECT_THAT(shares_of_tokens(cut, 5, 0), ElementsAre(1, 0, 0, 1, 1));
  EXPECT_THAT(shares_of_heads(cut, 6), ElementsAre(DoubleEq(2.0 / 6), 1));
  EXPECT_THAT(shares_of_tokens(cut, 6, 0), ElementsAre(0, 0, 0, 1, 0, 1));
}

TEST(KeptTokens, TwoPoliciesOverOneText) {
  const KeptTokens kept = kept_of({full_line(), cut_line()});
  const KeptView view = kept_view(kept, {0, 1, 0, 6, std::nullopt});
  ASSERT_EQ(view.shares.matrices.size(), 2u);
  EXPECT_EQ(view.shares.matrices[0].label, "cut");
  EXPECT_EQ(view.shares.matrices[1].values, (std::vector<double>{1, 1}));
  ASSERT_EQ(view.texts.size(), 2u);
  EXPECT_THAT(values_of(view.texts[0]), ElementsAre(0.5, 0.5, 0.5, 1, 0.5, 1));
  EXPECT_EQ(words_of(view.texts[0], 5), "token 5 “two⏎”, generated: 100.0 % of the heads hold it");
  EXPECT_TRUE(view.texts[0].tokens[5].ends_line);
  const Table table = table_of(view.texts);
  EXPECT_EQ(table.columns.size(), 5u);
  EXPECT_EQ(table.rows.size(), 6u);
  // By one head, the tokens that only one of the two keeps are apart.
  const KeptView head = kept_view(kept, {0, 1, 0, 6, 0});
  std::vector<bool> apart;
  for (const auto& token : head.texts[1].tokens) apart.push_back(token.apart);
  EXPECT_THAT(apart, ElementsAre(true, true, true, false, false, false));
  EXPECT_EQ(head.shares.matrices[0].marked.size(), 1u);
}

TEST(KeptTokens, WordsAreFoundAcrossTokens) {
  const KeptView view = kept_view(kept_of({full_line()}), {0, 0, {}, 4, {}});
  const auto places = [&](const char* words) { return places_of(view.texts[0], words); };
  EXPECT_THAT(places("one two"), ElementsAre(std::pair(1, 3)));
  EXPECT_THAT(places("e"), ElementsAre(std::pair(1, 2), std::pair(3, 4), std::pair(3, 4)));
  EXPECT_THAT(places("nowhere"), IsEmpty());
  EXPECT_THAT(places(""), IsEmpty());
}

TEST(KeptTokens, WithoutATokenizerTokensHaveNumbers) {
  json plain = cut_line();
  plain.erase("pieces");
  const KeptView view = kept_view(kept_of({plain}), {0, 0, {}, 4, {}});
  EXPECT_EQ(view.texts[0].tokens[2].text, "#2 ");
}

TEST(KeptTokens, WhatIsWrongIsNamed) {
  const auto said = [](const json& changed) {
    return testing_support::error_of([&] { kept_of({full_line(), changed}); });
  };
  const auto with = [&](const char* member, const json& value) {
    json changed = cut_line();
    changed[member] = value;
    return said(changed);
  };
  EXPECT_THAT(said(json::array()), HasSubstr("kept.jsonl: line 2: it says nothing of a prompt"));
  EXPECT_THAT(with("positions", {{{{0, 1}, {0, 2}}, {{0, 4}}}}), HasSubstr("do not ascend"));
  EXPECT_THAT(with("positions", {{{{0, 9}}, {{0, 4}}}}), HasSubstr("do not ascend"));
  EXPECT_THAT(with("positions", {{{{0, 4}}}}), HasSubstr("2 KV heads"));
  EXPECT_THAT(with("positions", json::array()), HasSubstr("1 layers"));
  EXPECT_THAT(with("positions", {{{{0}}, {{0, 4}}}}), HasSubstr("line 2"));
  EXPECT_THAT(with("positions", "all"), HasSubstr("line 2"));
  EXPECT_THAT(with("prompt_tokens", 5), HasSubstr("has 5 tokens, and above 4"));
  EXPECT_THAT(with("prompt_tokens", -1), HasSubstr("has -1 tokens"));
  EXPECT_THAT(with("cut_after", 99), HasSubstr("its cut is behind"));
  EXPECT_THAT(with("cut_after", 4e43), HasSubstr("'4e+43' where a number of tokens stands"));
  EXPECT_THAT(with("positions", {{{{0, 4e43}}, {{0, 4}}}}), HasSubstr("a number of tokens"));
  EXPECT_THAT(with("tokens", json::array()), HasSubstr("0 tokens that were generated"));
  EXPECT_THAT(with("later_cuts", {{{"after", 2}, {"positions", {{{{0, 1}}, {{0, 1}}}}}}}),
              HasSubstr("do not follow"));
  json without = cut_line();
  without.erase("positions");
  EXPECT_THAT(said(without), HasSubstr("--positions adds"));
  EXPECT_THAT(testing_support::error_of([] { parse_kept_tokens("\n", "k"); }),
              HasSubstr("k has no lines"));
}

}  // namespace
}  // namespace kvatlas::viewer
