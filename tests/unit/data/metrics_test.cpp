// SPDX-License-Identifier: Apache-2.0
#include "data/metrics.hpp"

#include <fstream>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "data/characters.hpp"
#include "tests/support/places.hpp"

namespace kvatlas::data {
namespace {

using nlohmann::json;

constexpr double kNear = 1e-6;

json reference() {
  std::ifstream file(kvatlas::testing_support::source_folder() /
                     "tests/unit/data/metric_cases.json");
  return json::parse(file);
}

TEST(Metrics, AgreeWithOtherImplementations) {
  const json cases = reference().at("cases");
  ASSERT_GT(cases.size(), 50u);
  for (const auto& one : cases) {
    const std::string said = one.at("generated"), right = one.at("answer");
    const auto expect = [&](const char* metric, double score) {
      EXPECT_NEAR(score, one.at(metric).get<double>(), kNear)
          << metric << " of " << said << "\n and " << right;
    };
    expect("f1", f1(said, right, Unit::word));
    expect("f1_by_character", f1(said, right, Unit::character));
    expect("exact", is_exact(said, right, Unit::word) ? 1 : 0);
    expect("rouge_l", rouge_l(said, right, Unit::word));
    expect("rouge_l_by_character", rouge_l(said, right, Unit::character));
    expect("numbers", right_numbers(said, right));
    expect("edit_similarity", edit_similarity(said, right));
    expect("code", edit_similarity(first_code_line(said), right));
    expect("found", is_found(said, right) ? 1 : 0);
  }
}

TEST(Metrics, ClassifyAsLongBenchDoes) {
  const json cases = reference().at("classifications");
  ASSERT_GT(cases.size(), 10u);
  for (const auto& one : cases)
    EXPECT_NEAR(
        classification(one.at("generated").get<std::string>(), one.at("answer").get<std::string>(),
                       one.at("classes").get<std::vector<std::string>>()),
        one.at("score").get<double>(), kNear)
        << one;
}

TEST(Metrics, FirstLines) {
  EXPECT_EQ(first_line("\n\nNumber\nQuestion: x"), "Number");
  EXPECT_EQ(first_line("Number"), "Number");
  EXPECT_EQ(first_line("\n\n"), "");
  EXPECT_EQ(first_line(" \nx"), " ");
  EXPECT_EQ(first_code_line("```\n# a\nx = 1 // b\n  y = 2\nz"), "  y = 2");
  EXPECT_EQ(first_code_line("a/b"), "a/b");
  EXPECT_EQ(first_code_line("#"), "");
  EXPECT_EQ(first_code_line(""), "");
}

TEST(Metrics, ChineseIsExactByCharacter) {
  EXPECT_TRUE(is_exact("“北京”。", "北 京", Unit::character));
  EXPECT_FALSE(is_exact("北京市", "北京", Unit::character));
}

/// All metrics, of two texts that may be anything: each is a share.
void expect_shares(const std::string& a, const std::string& b) {
  for (const Unit unit : {Unit::word, Unit::character})
    for (const double score : {f1(a, b, unit), rouge_l(a, b, unit)}) {
      EXPECT_GE(score, 0);
      EXPECT_LE(score, 1);
    }
  for (const double score :
       {right_numbers(a, b), edit_similarity(a, b), classification(a, b, {{a, b, ""}})}) {
    EXPECT_GE(score, 0);
    EXPECT_LE(score, 1);
  }
}

TEST(Metrics, AnyBytesAreScored) {
  std::mt19937 random(1);
  for (int round = 0; round < 300; ++round) {
    std::string texts[2];
    for (auto& text : texts)
      for (std::size_t size = random() % 200; size > 0; --size)
        text +=
            static_cast<char>(round % 2 ? random() : "\xe4\xb8\xad\xf0\x9f .\xff"[random() % 9]);
    expect_shares(texts[0], texts[1]);
    EXPECT_EQ(edit_similarity(texts[0], texts[0]), 1);
  }
}

// With the time by the product of the lengths this would not end.
TEST(Metrics, LongTexts) {
  std::string dots, letters, words;
  for (int i = 0; i < 1'000'000; ++i) {
    dots += "a.";
    letters += static_cast<char>('a' + i % 2);
    words += "ab ";
  }
  expect_shares(dots, words);
  expect_shares(letters, letters + "c");
  expect_shares(letters, std::string(150, 'a'));
}

TEST(Characters, OfAnyBytes) {
  EXPECT_EQ(characters("aé中😀"), U"aé中😀");
  EXPECT_EQ(characters("\xff\xe4\xb8"), U"\xfffd\xfffd\xfffd");
  EXPECT_EQ(characters("\xed\xa0\x80"), U"\xfffd\xfffd\xfffd");            // a half of a pair
  EXPECT_EQ(characters("\xc0\xaf"), U"\xfffd\xfffd");                      // longer than need be
  EXPECT_EQ(characters("\xf4\x90\x80\x80"), U"\xfffd\xfffd\xfffd\xfffd");  // beyond U+10FFFF
  EXPECT_EQ(in_small_letters(U"ÀÞ×ŐŸΆΈΊΌΎΏΣЁЯＺ"), U"àþ×őÿάέίόύώσёяｚ");
}

TEST(Metrics, TheChoiceIsReadByLongBenchV2sRule) {
  EXPECT_EQ(right_choice("The correct answer is (B).", "B"), 1);
  EXPECT_EQ(right_choice("So **The correct answer is (B)**", "B"), 1);
  EXPECT_EQ(right_choice("The correct answer is C", "C"), 1);
  EXPECT_EQ(right_choice("The correct answer is (B).", "C"), 0);
  // The first letter in brackets counts, even behind one without.
  EXPECT_EQ(right_choice("The correct answer is A. The correct answer is (D)", "D"), 1);
  EXPECT_EQ(right_choice("The correct answer is A. The correct answer is B", "A"), 1);
  EXPECT_EQ(right_choice("The correct answer is (insert) The correct answer is (A)", "A"), 1);
  for (const char* none : {"", "B", "(B)", "the correct answer is B", "The correct answer is (E)",
                           "The correct answer is ", "The correct answer is (", "The answer is B"})
    EXPECT_EQ(right_choice(none, "B"), 0) << none;
}

}  // namespace
}  // namespace kvatlas::data
