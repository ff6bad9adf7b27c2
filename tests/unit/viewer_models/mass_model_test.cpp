// SPDX-License-Identifier: Apache-2.0
#include "viewer/models/mass_model.hpp"

#include <cmath>

#include <gmock/gmock.h>

#include "tests/unit/viewer_models/open_profile.hpp"

namespace kvatlas::viewer {
namespace {

using calibrate::testing_profile::kTokens;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(MassModel, LastRowsThenGeneratedTokens) {
  const OpenProfile open;
  const MassModel model = read_mass_model(open.reader(), 3, {4, 64}, MassRows::last);
  EXPECT_EQ(model.sample, "sample 3");
  EXPECT_THAT(model.positions, ElementsAre(292, 293, 294, 295, 296, 297, 298, 299, 300, 301, 302));
  // Layer 1 has 0.903 in this sample, and its last step is low.
  EXPECT_NEAR(model.masses(1, 0), 0.903, 1e-6);
  EXPECT_NEAR(model.masses(1, 9), 0.903, 1e-6);
  EXPECT_NEAR(model.masses(1, 10), 0.01, 1e-6);
  std::vector<std::string> texts(static_cast<std::size_t>(kTokens), "word");
  const MassView view = mass_view(model, 0.85, texts);
  // Layer 0 by its last two rows; layer 1 all but the last step.
  ASSERT_EQ(view.lazy_shares.size(), 4u);
  EXPECT_DOUBLE_EQ(view.lazy_shares[0], 2.0 / 11);
  EXPECT_DOUBLE_EQ(view.lazy_shares[1], 10.0 / 11);
  EXPECT_DOUBLE_EQ(view.lazy_shares[2], 0);
  const Matrix& matrix = view.heatmap.matrices.at(0);
  EXPECT_EQ(matrix.contour, 0.85);
  EXPECT_EQ(matrix.column_labels.at(8), "300");
  EXPECT_EQ(matrix.column_texts.at(0), "token 292 word");
  EXPECT_EQ(matrix.column_texts.at(8), "token 300 generated 1");
  EXPECT_DOUBLE_EQ(matrix.at(1, 10), model.masses(1, 10));
  ASSERT_EQ(view.heatmap.table.rows.size(), 44u);
  EXPECT_EQ(view.heatmap.table.rows[0][2].text, "292 word");
  EXPECT_EQ(view.heatmap.table.rows[8][2].text, "300 generated 1");
  EXPECT_EQ(view.heatmap.table.rows[11][4].text, "yes");
  EXPECT_EQ(view.heatmap.marks.at(0).handle, Handle::lazy_threshold);
  EXPECT_DOUBLE_EQ(view.shares.bars.at(0).bars.at(1).height, 10.0 / 11);
}

TEST(MassModel, RowsAlongThePrompt) {
  const OpenProfile open({.samples = 2, .heatmap = true});
  EXPECT_TRUE(has_mass_rows(open.reader(), MassRows::along));
  const MassModel model = read_mass_model(open.reader(), 1, {16, 112}, MassRows::along);
  EXPECT_THAT(model.positions, ElementsAre(0, 74, 149, 224, 299));
  const MassView view = mass_view(model, 0.9);
  EXPECT_DOUBLE_EQ(view.lazy_shares[1], 4.0 / 5);  // 0.95
  EXPECT_DOUBLE_EQ(view.lazy_shares[3], 0);        // 0.85
  EXPECT_THAT(view.heatmap.notes.at(0), HasSubstr("5 rows along a prompt of 300 tokens"));
}

TEST(MassModel, PartOfTheTokens) {
  const OpenProfile open({.samples = 2, .heatmap = true});
  const MassModel model = read_mass_model(open.reader(), 1, {16, 112}, MassRows::along);
  const MassModel part = part_of(model, 74, 224);
  EXPECT_THAT(part.positions, ElementsAre(74, 149));
  ASSERT_EQ(part.masses.size(), 8);
  EXPECT_EQ(part.masses(1, 0), model.masses(1, 1));
  EXPECT_EQ(part.masses(3, 1), model.masses(3, 2));
  EXPECT_THAT(part_of(model, 0, 300).positions, ElementsAre(0, 74, 149, 224, 299));
  EXPECT_THAT(part_of(model, 80, 90).positions, ElementsAre(74));  // between two rows
  EXPECT_THAT(part_of(model, 900, 990).positions, ElementsAre(299));
}

TEST(MassModel, RefusesWhatTheProfileLacks) {
  const OpenProfile open({.samples = 2});
  EXPECT_TRUE(has_mass_rows(open.reader(), MassRows::last));
  EXPECT_FALSE(has_mass_rows(open.reader(), MassRows::along));
  const auto read = [&](std::size_t position, kernels::Proximity keep, MassRows rows) {
    return refusal([&] { read_mass_model(open.reader(), position, keep, rows); });
  };
  EXPECT_THAT(read(0, {4, 64}, MassRows::along), HasSubstr("--capture default,heatmap"));
  EXPECT_THAT(read(0, {4, 65}, MassRows::last), HasSubstr("recent=65"));
  EXPECT_THAT(read(2, {4, 64}, MassRows::last), HasSubstr("no sample 2"));
}

}  // namespace
}  // namespace kvatlas::viewer
