// SPDX-License-Identifier: Apache-2.0
#include "data/haystack.hpp"

#include <algorithm>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data/texts.hpp"
#include "tests/unit/data/token_counters.hpp"

namespace kvatlas::data {
namespace {

using testing::EndsWith;
using testing::StartsWith;

std::vector<std::string> sentences(const std::string& text) {
  std::vector<std::string> out;
  std::size_t start = 0;
  for (const std::size_t end : sentence_ends(text)) {
    out.push_back(text.substr(start, end - start));
    start = std::min(text.find_first_not_of(" \n", end), text.size());
  }
  return out;
}

TEST(Texts, ArePlainAndHoldNoTokenizersSpecials) {
  EXPECT_EQ(prose_text().size(), 669129u);
  EXPECT_GT(code_text().size(), 150'000u);
  for (const auto text : {prose_text(), code_text()}) {
    EXPECT_TRUE(std::all_of(text.begin(), text.end(),
                            [](char c) { return c == '\n' || (c >= ' ' && c <= '~'); }));
    for (const char* special : {"<|", "|>", "<s>", "</s>", "<pad>", "[INST]"})
      EXPECT_EQ(text.find(special), text.npos) << special;
  }
  EXPECT_THAT(std::string(prose_text()), StartsWith("The family of Dashwood"));
  EXPECT_THAT(std::string(prose_text()), EndsWith("between their husbands.\n"));
  EXPECT_THAT(std::string(code_text()), StartsWith("// SPDX-License-Identifier: Apache-2.0\n"));
}

TEST(Haystack, GivesAsManyPiecesAsAsked) {
  EXPECT_EQ(Haystack::repeat(5).first(0), "");
  const auto one = Haystack::repeat(5).first(1);
  EXPECT_THAT(sentences(one), testing::SizeIs(1));
  EXPECT_THAT(sentences(Haystack::repeat(5).first(5)), testing::SizeIs(5));
  EXPECT_EQ(Haystack::repeat(5).first(6), Haystack::repeat(5).first(5) + "\n" + one);
  for (const std::int64_t pieces : {1, 2, 17, 1000, 300'000}) {
    EXPECT_EQ(count_words(Haystack::prose(5).first(pieces)), pieces);
    EXPECT_EQ(count_words(Haystack::code(5).first(pieces)), pieces);
  }
}

TEST(Haystack, MorePiecesContinueTheSameText) {
  for (const auto& haystack : {Haystack::repeat(2), Haystack::prose(2), Haystack::code(2)})
    EXPECT_THAT(haystack.first(500), StartsWith(haystack.first(333)));
}

TEST(Haystack, BeginsAnewAfterTheTextsEnd) {
  const auto all = count_words(prose_text());
  const auto text = Haystack::prose(1).first(2 * all);
  EXPECT_EQ(occurrences(text, "The family of Dashwood had long been settled"), 2);
  EXPECT_EQ(occurrences(text, "between their husbands.\nThe family of Dashwood"), 2);
}

TEST(Haystack, TheSeedChoosesAParagraph) {
  std::set<std::string> starts;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const auto start = Haystack::prose(seed).first(12);
    const bool at_paragraph = prose_text().find("\n\n" + start) != std::string_view::npos ||
                              prose_text().find(start) == 0;
    EXPECT_TRUE(at_paragraph) << start;
    starts.insert(start);
  }
  EXPECT_GT(starts.size(), 17u);
}

TEST(Haystack, TheSeedChoosesTheRepeatedSentences) {
  std::set<std::string> texts;
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    const auto five = sentences(Haystack::repeat(seed).first(5));
    EXPECT_THAT(std::set<std::string>(five.begin(), five.end()), testing::SizeIs(5));
    texts.insert(Haystack::repeat(seed).first(20));
  }
  EXPECT_EQ(texts.size(), 100u);
}

TEST(SentenceEnds, KnowTitlesQuotesAndParagraphs) {
  EXPECT_THAT(
      sentences("Mrs. Dashwood came. \"Who is it?\" said she. \"John!\"\n\nNo answer... "
                "He had gone to St. James; so they said. The rest"),
      testing::ElementsAre("Mrs. Dashwood came.", "\"Who is it?\" said she.", "\"John!\"",
                           "No answer...", "He had gone to St. James; so they said.", "The rest"));
  EXPECT_TRUE(sentence_ends("").empty());
  EXPECT_THAT(sentence_ends("No end"), testing::ElementsAre(6));
}

TEST(Hide, PutsNeedlesBehindSentences) {
  const std::string hay = "One. Two two.\n\nThree.";
  EXPECT_EQ(hide(hay, {{0, "N."}}), "N. One. Two two.\n\nThree.");
  EXPECT_EQ(hide(hay, {{0.2, "N."}}), "One. N. Two two.\n\nThree.");
  EXPECT_EQ(hide(hay, {{0.6, "N."}}), "One. Two two. N.\n\nThree.");
  EXPECT_EQ(hide(hay, {{1, "N."}}), "One. Two two.\n\nThree. N.");
  EXPECT_EQ(hide(hay, {{1, "A."}, {0, "B."}, {1, "C."}, {0, "D."}}),
            "B. D. One. Two two.\n\nThree. A. C.");
  EXPECT_EQ(hide("One. Two", {{1, "N."}}), "One. Two ... N.");
  EXPECT_EQ(hide("One. Two", {}), "One. Two ...");
}

}  // namespace
}  // namespace kvatlas::data
