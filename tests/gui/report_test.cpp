// SPDX-License-Identifier: Apache-2.0
// The page of `kvatlas report` as text: what it embeds is what the rules say, and nothing in it
// runs but its own script. tests/interop/test_report_page.py opens it in a browser.
#include "viewer/draw/report.hpp"

#include <QByteArray>
#include <algorithm>
#include <regex>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/share_code.hpp"
#include "base/table.hpp"
#include "calibrate/rules/policy_reports.hpp"
#include "tests/gui/gui_support.hpp"
#include "tests/gui/map_profile.hpp"
#include "tests/support/small_profile.hpp"
#include "viewer/draw/picture_impl.hpp"
#include "viewer/maps/tiles.hpp"
#include "viewer/methods/choices_document.hpp"

namespace kvatlas::viewer {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

/// What stands in the text between two others, from a place on.
std::string between(const std::string& text, const std::string& begin, const std::string& end,
                    std::size_t from = 0) {
  const auto first = text.find(begin, from);
  if (first == text.npos) return "";
  const auto start = first + begin.size();
  return text.substr(start, text.find(end, start) - start);
}

std::size_t count_of(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (auto at = text.find(part); at != text.npos; at = text.find(part, at + part.size())) ++count;
  return count;
}

/// The cells of a row, each as its exact text: the title if there is one.
std::vector<std::string> exact_cells(const std::string& row) {
  static const std::regex kCell("<td class=\"number\"(?: title=\"([^\"]*)\")?>([^<]*)</td>");
  std::vector<std::string> out;
  for (std::sregex_iterator cell(row.begin(), row.end(), kCell), end; cell != end; ++cell)
    out.push_back((*cell)[1].matched ? (*cell)[1].str() : (*cell)[2].str());
  return out;
}

class Page : public ::testing::Test {
 protected:
  std::string page(const std::filesystem::path& path) {
    files_ = open_files({path});
    const profile::Reader& profile = files_.source.required_profile();
    request_.pictures.choices = initial_choices(profile.header(), profile.samples(), {});
    request_.pictures.positions = sample_positions(profile, "");
    return report_html(files_, request_);
  }
  testing_support::TemporaryFolder folder_;
  OpenedFiles files_;
  ReportRequest request_;
};

/// The slider of the page goes through the rows of a table, which are the program's own answers.
TEST_F(Page, EveryThresholdHasTheAnswersOfTheRules) {
  calibrate::testing_profile::write_profile(folder_.path() / "p.h5");
  const std::string html = page(folder_.path() / "p.h5");
  const auto& choices = request_.pictures.choices;
  const LazyModel model = read_lazy_model(files_.source.required_profile(),
                                          request_.pictures.positions, choices.lazy_arrays, {});
  const std::string figure = between(html, "<figure id=\"lazy-scores\">", "</figure>");
  EXPECT_THAT(figure, HasSubstr("<table data-handle=\""));
  const json layers =
      json::parse(between(figure, "<script type=\"application/json\" class=\"layers\">", "<"));
  ASSERT_EQ(layers.size(), 101u);
  std::size_t at = figure.find("<tbody>");
  bool some = false;
  for (int hundredths = 0; hundredths <= 100; ++hundredths) {
    SCOPED_TRACE(hundredths);
    LazySettings settings = choices.lazy;
    settings.threshold = hundredths / 100.0;
    const LazyDecisions decided = lazy_decisions(model, settings);
    const auto savings = calibrate::layer_savings(decided.shares, model.shape, choices.length,
                                                  choices.lazy_arrays.keep);
    EXPECT_EQ(layers[static_cast<std::size_t>(hundredths)].get<std::vector<double>>(),
              decided.shares);
    const std::string row = between(figure, "<tr>", "</tr>", at);
    at = figure.find("</tr>", at) + 1;
    // Score and interval are not known; a missing number is "-".
    const std::vector<std::string> expected = {exact_text(settings.threshold),
                                               "-",
                                               "-",
                                               "-",
                                               exact_text(decided.lazy_layers),
                                               exact_text(1 / savings.kv_ratio),
                                               exact_text(savings.kept_bytes),
                                               exact_text(savings.full_bytes - savings.kept_bytes)};
    EXPECT_EQ(exact_cells(row), expected);
    some = some || savings.kept_bytes < savings.full_bytes;
  }
  EXPECT_TRUE(some);
}

/// What the slider shows is what the program draws, not what the page makes of it.
TEST_F(Page, EveryStepOfASettingIsThePictureOfTheProgram) {
  calibrate::testing_profile::write_profile(folder_.path() / "p.h5");
  const std::string html = page(folder_.path() / "p.h5");
  const auto& choices = request_.pictures.choices;
  const LazyModel model = read_lazy_model(files_.source.required_profile(),
                                          request_.pictures.positions, choices.lazy_arrays, {});
  const std::string figure = between(html, "<figure id=\"lazy-layers\">", "</figure>");
  const std::string packed = between(figure, "<script type=\"text/plain\" data-steps=\"", "<");
  const QByteArray length = QByteArray::fromHex("04000000");  // Qt expects it in front
  const json steps =
      json::parse(qUncompress(length + QByteArray::fromBase64(QByteArray::fromStdString(
                                           packed.substr(packed.find('>') + 1))))
                      .toStdString());
  const std::string scores = between(html, "<figure id=\"lazy-scores\">", "</figure>");
  const auto stops = json::parse("[" + between(scores, "data-stops=\"[", "]") + "]")
                         .get<std::vector<std::size_t>>();
  ASSERT_EQ(steps["frames"].size(), stops.size());
  EXPECT_LE(stops.size(), 27u);
  const auto text_of = [&](const json& runs) {
    std::string out;
    for (std::size_t i = 0; i < runs.size(); i += 2)
      for (std::size_t line = runs[i]; line < std::size_t{runs[i]} + std::size_t{runs[i + 1]};
           ++line)
        out += steps["lines"][line].get<std::string>() + "\n";
    return out;
  };
  std::set<std::string> titles;
  for (const int hundredths : {0, 45, 60, 100}) {
    LazySettings settings = choices.lazy;
    settings.threshold = hundredths / 100.0;
    const auto picture = chart_picture(lazy_view(model, settings).layers);
    const auto stop = std::find(stops.begin(), stops.end(), hundredths) - stops.begin();
    ASSERT_LT(stop, std::ssize(stops)) << hundredths;
    const json& frame = steps["frames"][static_cast<std::size_t>(stop)];
    EXPECT_EQ(frame["title"], picture->title());
    titles.insert(picture->title());
    for (const bool dark : {false, true}) {
      const std::string svg = svg_bytes(*picture, make_theme(dark, Headless::font()), {}, {});
      EXPECT_EQ(text_of(frame[dark ? "dark" : "light"]), svg) << hundredths;
    }
  }
  EXPECT_GT(titles.size(), 2u);
  // A picture that depends on a setting and cannot follow it says so.
  EXPECT_THAT(html, HasSubstr("<figure id=\"gate\" data-fixed=\""));
}

TEST_F(Page, NumbersAreForPeopleAndExactOnesBehindThem) {
  calibrate::testing_profile::write_profile(folder_.path() / "p.h5");
  const std::string html = page(folder_.path() / "p.h5");
  const std::string comparison = between(html, "<h2 id=\"comparison\">", "</table>");
  EXPECT_THAT(comparison, AllOf(HasSubstr("data-exact=\"KV kept (share)\">KV kept</th>"),
                                HasSubstr(" %</td>"), HasSubstr("iB</td>")));
  EXPECT_TRUE(
      std::regex_search(comparison, std::regex("title=\"0\\.[0-9]{6,9}\">[0-9]+\\.[0-9] %</td>")))
      << comparison;
}

TEST_F(Page, MapsAreTheStoredCodes) {
  testing_gui::write_map_profile(folder_.path() / "p.h5", {300});
  const std::string html = page(folder_.path() / "p.h5");
  const json maps =
      json::parse(between(html, "<script type=\"application/json\" id=\"maps-data\">", "<"));
  EXPECT_EQ(maps["layers"], testing_gui::kMapLayers);
  EXPECT_EQ(maps["heads"], testing_gui::kMapHeads);
  const auto& levels = maps["samples"][0]["levels"];
  ASSERT_EQ(levels.size(), 2u);  // of thumbnails, and the finest
  EXPECT_EQ(levels[1]["level"], 0);
  EXPECT_EQ(levels[1]["block"], 1);
  const auto tiles =
      profile_tiles(std::make_shared<const profile::Reader>(folder_.path() / "p.h5"));
  for (const auto& level : levels) {
    const auto side = level["side"].get<std::int64_t>();
    const int number = level["level"];
    const QByteArray text = QByteArray::fromStdString(
        between(html, "data-codes=\"0." + std::to_string(number) + ".2\">", "<"));
    // Qt expects the length in front.
    const auto bytes = testing_gui::kMapHeads * side * (side + 1) / 2;
    QByteArray deflated(4, '\0');
    for (int i = 0; i < 4; ++i) deflated[i] = static_cast<char>(bytes >> (24 - 8 * i));
    const QByteArray codes = qUncompress(deflated + QByteArray::fromBase64(text));
    ASSERT_EQ(codes.size(), bytes);
    qsizetype at = 0;
    for (std::int64_t head = 0; head < testing_gui::kMapHeads; ++head) {
      const TileKey key{{0, 2, head, Reduction::mean}, number, 0, 0};
      const Tile tile = tiles->read(key);
      const Cells cells = cells_of(tile, key);
      std::vector<std::uint8_t> above(static_cast<std::size_t>(side));
      for (std::int64_t row = 0; row < side; ++row)
        for (std::int64_t column = 0; column <= row; ++column) {
          std::uint8_t& of_column = above[static_cast<std::size_t>(column)];
          const auto less = static_cast<std::uint8_t>(codes[at++]);
          of_column = static_cast<std::uint8_t>(less + (column < row ? of_column : 0));
          if (row < cells.rows && column < cells.columns) {
            ASSERT_EQ(of_column, share_code::code_of(cells.at(row, column)))
                << head << " " << row << " " << column;
          }
        }
    }
    EXPECT_EQ(at, codes.size());
  }
}

/// Names and tokens come from files. Whatever they hold, it stays text.
TEST_F(Page, WhatFilesSayStaysText) {
  const std::string word = "</script><script>alert(1)</script><!--\xE2\x80\xA8\xFF\"'&<img src=x>";
  testing_gui::write_map_profile(folder_.path() / "<b>p.h5", {300}, false, word);
  request_.title = word;
  const std::string html = page(folder_.path() / "<b>p.h5");
  EXPECT_THAT(html, AllOf(Not(HasSubstr("<script>alert")), Not(HasSubstr("<img src=x")),
                          Not(HasSubstr("<!--")), Not(HasSubstr("\xE2\x80\xA8\xFF")),
                          HasSubstr("&lt;b&gt;p.h5")));
  // The script of the page is the only one that could run, and every other one is data.
  EXPECT_EQ(count_of(html, "<script>"), 1u);
  EXPECT_EQ(count_of(html, "</script>"), 1 + count_of(html, "<script type=\"application/json\"") +
                                             count_of(html, "<script type=\"text/plain\""));
  EXPECT_THAT(between(html, "<meta http-equiv=\"Content-Security-Policy\" content=\"", "\""),
              AllOf(HasSubstr("default-src 'none'"), HasSubstr("script-src 'sha256-"),
                    Not(HasSubstr("unsafe")), Not(HasSubstr("http"))));
  const json maps = json::parse(
      between(html, "<script type=\"application/json\" id=\"maps-data\">", "</script>"));
  const std::string text = maps["samples"][0]["texts"][5];
  EXPECT_EQ(text, "</script><script>alert(1)</script><!--\\xE2\\x80\\xA8\\xFF\"'&<img src=x>");
  EXPECT_EQ(maps["samples"][0]["texts"].size(), 300u);
}

}  // namespace
}  // namespace kvatlas::viewer
