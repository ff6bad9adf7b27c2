// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/gui/gui_support.hpp"
#include "tests/gui/map_profile.hpp"
#include "tests/support/error_of.hpp"
#include "viewer/draw/map_makers.hpp"
#include "viewer/models/pair_rows_model.hpp"

namespace kvatlas::viewer {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class MapPictures : public ::testing::Test {
 protected:
  MapPictures() {
    testing_gui::write_map_profile(folder_.path() / "p.h5", {700});
    reader_ = std::make_unique<profile::Reader>(folder_.path() / "p.h5");
    source_.profile = reader_.get();
    request_.positions = {0};
    request_.at = PictureRequest::Place{1, 2};
  }
  testing_support::TemporaryFolder folder_;
  std::unique_ptr<profile::Reader> reader_;
  PictureSource source_;
  PictureRequest request_;
};

TEST_F(MapPictures, RegionHasItsCellsAndStatistics) {
  request_.region = parse_region("600:632,0:16");
  const PicturePtr picture = make_map_picture(source_, request_);
  const std::string csv = picture->csv();
  // Blocks of two tokens: 16 rows of 8.
  EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n') - 16 * 8, 6);
  EXPECT_THAT(csv, AllOf(HasSubstr("\n600,0,2,"), HasSubstr("\n630,14,2,"),
                         Not(HasSubstr("\n598,")), Not(HasSubstr("\n600,16,"))));
  // The sink of head 1 * 4 + 2 is 0.34, which means of two keys halve.
  EXPECT_THAT(csv, AllOf(HasSubstr("# queries 600 to 631, keys 0 to 15:\n# sum"),
                         HasSubstr("greatest 0.34")));
  // Two maps are one table.
  const std::string both = stacked_picture("both", {picture, picture}, true)->csv();
  EXPECT_EQ(std::count(both.begin(), both.end(), '\n'), 2 * (16 * 8 + 6) - 1);
  EXPECT_THAT(both, AllOf(HasSubstr("\nmap,first_query,"), HasSubstr("\n1,600,0,2,"),
                          HasSubstr("\n2,630,14,2,")));
}

TEST_F(MapPictures, RegionSaysTheCellsThatItSums) {
  request_.region = parse_region("601:630,3:15");
  const std::string csv = make_map_picture(source_, request_)->csv();
  EXPECT_THAT(csv, AllOf(HasSubstr("# queries 600 to 629, keys 2 to 15:\n# sum"),
                         HasSubstr("\n600,2,2,"), HasSubstr("\n628,14,2,")));
}

TEST_F(MapPictures, RegionBeyondTheSampleIsRefused) {
  request_.region = parse_region("600:800,0:16");
  EXPECT_THAT(testing_support::error_of([&] { make_map_picture(source_, request_); }),
              HasSubstr("has 700 tokens"));
}

TEST_F(MapPictures, RowsOfTwoLayersBesideEachOther) {
  EXPECT_EQ(sample_with_rows(*reader_, 5, {0}), 0u);
  const Chart chart = pair_rows_chart(*reader_, 0, 2, 1, 3);
  ASSERT_EQ(chart.lines.size(), 2u);
  EXPECT_EQ(chart.lines[0].label, "layer 1");
  // The sinks of heads 4 * 1 + 2 and 4 * 3 + 2; rows see 0.2 of all tokens alike.
  EXPECT_NEAR(chart.lines[0].points[0].y, 0.34, 2e-3);
  EXPECT_NEAR(chart.lines[1].points[0].y, 0.66, 2e-3);
  EXPECT_EQ(chart.table.rows.size(), 700u);
  EXPECT_THAT(chart.notes.front(), HasSubstr("mean of the last 4 prompt rows"));
}

TEST_F(MapPictures, AllHeadsAndTheLastRows) {
  request_.at.reset();
  const std::string grid = make_grid_picture(source_, request_)->csv();
  EXPECT_THAT(grid, HasSubstr("layer"));
  const Theme theme = make_theme(false, QFont());
  const auto image_of = [&](const PicturePtr& picture) { return to_image(*picture, theme, {}); };
  const QImage all = image_of(make_grid_picture(source_, request_));
  EXPECT_GT(all.width(), testing_gui::kMapHeads * 40);
  const std::string mean = make_rows_picture(source_, request_)->csv();
  EXPECT_THAT(mean, HasSubstr("mean of layer 0"));
  request_.at = PictureRequest::Place{1, 2};
  const PicturePtr rows = make_rows_picture(source_, request_);
  EXPECT_THAT(rows->csv(), HasSubstr("L1.H2"));
  EXPECT_NE(image_of(rows), image_of(make_map_picture(source_, request_)));
}

}  // namespace
}  // namespace kvatlas::viewer
