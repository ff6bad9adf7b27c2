// SPDX-License-Identifier: Apache-2.0
#include "base/table.hpp"

#include <algorithm>
#include <limits>
#include <sstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace kvatlas {
namespace {

constexpr double kNoNumber = std::numeric_limits<double>::quiet_NaN();

std::vector<std::string> shown(const std::string& unit, const std::vector<double>& numbers) {
  Table table;
  table.columns = {{"title", unit}};
  for (const double number : numbers) table.rows.push_back({number});
  const ColumnText column(table, 0);
  std::vector<std::string> out;
  for (const auto& row : table.rows) out.push_back(column.of(row[0]));
  return out;
}
using Texts = std::vector<std::string>;

TEST(Table, NumbersAreWrittenAsPeopleWriteThem) {
  EXPECT_EQ(shown("share", {0.766457721, 1, 0}), (Texts{"76.6 %", "100.0 %", "0.0 %"}));
  EXPECT_EQ(shown("bytes", {18030028.8, 512}), (Texts{"17.2 MiB", "512 bytes"}));
  EXPECT_EQ(shown("", {1, 0.766457721, 0.5, 0}), (Texts{"1.000", "0.766", "0.500", "0.000"}));
  EXPECT_EQ(shown("", {3, 131072, 0}), (Texts{"3", "131072", "0"}));
  EXPECT_EQ(shown("", {12.34567, 1.5}), (Texts{"12.3", "1.5"}));
  EXPECT_EQ(shown("", {153.27, 1.5}), (Texts{"153", "2"}));
  EXPECT_EQ(shown("nat", {0.0123456, 0.1}), (Texts{"0.0123", "0.1000"}));
}

TEST(Table, WhatIsNotZeroDoesNotLookLikeIt) {
  EXPECT_EQ(shown("", {0.5, 0.00041234}), (Texts{"0.500", "0.00041"}));
  EXPECT_EQ(shown("", {0.5, -0.00001234}), (Texts{"0.500", "-1.2e-05"}));
  EXPECT_EQ(shown("", {1.23456e-7}), (Texts{"1.23e-07"}));
}

TEST(Table, WhatIsNoNumberIsSaid) {
  EXPECT_EQ(shown("share", {kNoNumber}), (Texts{"-"}));
  EXPECT_EQ(shown("", {kNoNumber, std::numeric_limits<double>::infinity()}),
            (Texts{"-", "infinite"}));
  EXPECT_EQ(shown("bytes", {1e300}), (Texts{"1e+300"}));
  EXPECT_EQ(shown("", {1e300}), (Texts{"1e+300"}));
  EXPECT_EQ(shown("", {}), Texts{});
}

TEST(Table, TitlesLeaveOutWhatCellsSay) {
  EXPECT_EQ(shown_title({"KV kept", "share"}), "KV kept");
  EXPECT_EQ(exact_title({"KV kept", "share"}), "KV kept (share)");
  EXPECT_EQ(shown_title({"length", "tokens"}), "length (tokens)");
  EXPECT_EQ(exact_text(0.766457721123), "0.766457721");
  EXPECT_EQ(exact_text(kNoNumber), "");
}

TEST(Table, ColumnsAreAsWideAsTheyNeed) {
  const Table table = {"Title", {"name", {"n", "share"}}, {{"a", 1}, {"longer", 0.02}}};
  EXPECT_EQ(table_text(table), "Title\n  name          n\n  a       100.0 %\n  longer    2.0 %\n");
}

std::size_t widest_line(const std::string& text) {
  std::size_t widest = 0;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) widest = std::max(widest, line.size());
  return widest;
}

TEST(Table, TitlesAreBrokenWhereALineIsTooShort) {
  Table table = {std::string(60, 't') + ' ' + std::string(60, 'u'), {"key"}, {{"a"}}};
  for (int i = 0; i < 8; ++i) {
    table.columns.emplace_back("saved at 16384");
    table.rows[0].emplace_back("44.8 %");
  }
  const std::string text = table_text(table);
  EXPECT_LE(widest_line(text), 100u);
  EXPECT_NE(text.find(" saved at  "), text.npos) << text;
  EXPECT_EQ(text.find("saved at 16384"), text.npos) << text;
}

TEST(Table, SentencesAndNamesGoOnBelowThemselves) {
  const std::string layers =
      "0-3, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31, 33, 35, 37, 39";
  const Table table = {"Title",
                       {"policy", "bytes", {"layers", "", true}},
                       {{"simlayerkv:threshold=0.93799,recent=80", "24.0 MiB", layers},
                        {"full", "24.0 MiB", "0-3"}}};
  const std::string text = table_text(table);
  EXPECT_LE(widest_line(text), 100u);
  EXPECT_NE(text.find("\n  simlayerkv:threshold=0.93799,recent=80  24.0 MiB  0-3, 7,"), text.npos)
      << text;
  EXPECT_NE(text.find("37, 39\n  full"), text.npos) << text;

  const std::string name = "simlayerkv:threshold=0.93799,recent=80";
  const Table named = {"Title", {"policy", "other", "third"}, {{name, name, name}}};
  EXPECT_LE(widest_line(table_text(named)), 100u) << table_text(named);
}

TEST(Table, ColumnsThatDoNotStandBesideTheOthersFollowBelow) {
  Table table = {"Title", {"layer"}, {{"7"}}};
  for (int i = 0; i < 20; ++i) {
    table.columns.emplace_back(std::string(8, static_cast<char>('a' + i)));
    table.rows[0].emplace_back(i);
  }
  const std::string text = table_text(table);
  EXPECT_LE(widest_line(text), 100u) << text;
  EXPECT_NE(text.find("8\n  layer  jjjjjjjj"), text.npos) << text;
  EXPECT_NE(text.find("tttttttt\n  7"), text.npos) << text;
}

TEST(Table, CsvAndJsonHaveWhatTheTableHas) {
  const Table table = {"Title", {"name", {"n", "share"}}, {{"a,b", 0.25}, {"#", "none"}}};
  EXPECT_EQ(table_csv(table), "name,n (share)\n\"a,b\",0.25\n\"#\",none\n");
  EXPECT_EQ(table_json(table).dump(),
            R"({"columns":["name","n"],"rows":[["a,b",0.25],["#","none"]],"title":"Title"})");
}

}  // namespace
}  // namespace kvatlas
