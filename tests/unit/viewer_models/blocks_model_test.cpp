// SPDX-License-Identifier: Apache-2.0
#include "viewer/models/blocks_model.hpp"

#include <cmath>

#include <gmock/gmock.h>

#include "calibrate/methods/pod.hpp"
#include "tests/unit/viewer_models/open_profile.hpp"
#include "viewer/models/model_axes.hpp"

namespace kvatlas::viewer {
namespace {

using calibrate::testing_profile::kTokens;
using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;

BlocksSettings at(double delta) {
  BlocksSettings settings;
  settings.delta = delta;
  settings.proximal = {16, 112};
  settings.length = kTokens;
  settings.new_tokens = 28;
  return settings;
}

calibrate::PodRequest request_of(const BlocksSettings& settings) {
  calibrate::PodRequest request;
  request.policy.proximal = settings.proximal;
  request.policy.per_query_head = settings.per_query_head;
  request.delta = settings.delta;
  request.new_tokens = settings.new_tokens;
  return request;
}

TEST(BlocksModel, NumbersAreTheCommandLines) {
  const OpenProfile open;
  const auto positions = all_samples(open.reader());
  const BlocksModel model = read_blocks_model(open.reader(), positions, {});
  const GateModel gate = read_gate_model(open.reader(), positions, {16, 112});
  calibrate::Request wanted;
  wanted.lengths = {kTokens};
  const calibrate::Evidence evidence(open.reader(), wanted);
  for (const double delta : {0.0, 0.2, 0.5, 0.88, 1.0})
    for (const bool per_query_head : {false, true}) {
      BlocksSettings settings = at(delta);
      settings.per_query_head = per_query_head;
      const BlocksView view = blocks_view(model, settings);
      const json report = calibrate_pod(evidence, request_of(settings), {}).section;
      EXPECT_EQ(json(view.blocks), report["result"]["lowest"]);
      EXPECT_EQ(view.point.dropped, report["keys_dropped"].get<double>());
      const json& savings = report["savings"][0];
      EXPECT_EQ(view.saved, savings["saved"].get<double>());
      EXPECT_EQ(view.batch, savings["batch"].get<std::int64_t>());
      EXPECT_EQ(view.full_batch, savings["full_batch"].get<std::int64_t>());
      for (const auto& point : report["sweep"])
        if (std::abs(point["delta"].get<double>() - delta) < 1e-9) {
          EXPECT_EQ(view.point.blocks, point["blocks"].get<std::int64_t>());
        }
      for (const auto& share : report["gate"]["skipped"])
        EXPECT_EQ(gate_view(gate, view.blocks, share["tau"]).skipped,
                  share["skipped"].get<double>());
    }
}

TEST(BlocksModel, AGateWithoutDistantPartsSaysSo) {
  const auto view = gate_view({}, calibrate::Blocks(4, {0, 0, 0, 0}), 1);
  EXPECT_EQ(view.chart.title, "PoD: no distant parts that could be skipped");
  EXPECT_THAT(view.chart.notes, testing::Contains(HasSubstr("nothing is distant")));
}

TEST(BlocksModel, DeltaForASavingIsTheCommandLines) {
  const OpenProfile open;
  const BlocksModel model = read_blocks_model(open.reader(), all_samples(open.reader()), {});
  calibrate::Request wanted;
  wanted.lengths = {kTokens};
  const calibrate::Evidence evidence(open.reader(), wanted);
  BlocksSettings settings = at(0.5);
  settings.wanted_saving = 0.07;
  calibrate::PodRequest request = request_of(settings);
  request.delta.reset();
  request.wanted_saving = settings.wanted_saving;
  const json report = calibrate_pod(evidence, request, {}).section;
  const BlocksView view = blocks_view(model, settings);
  ASSERT_TRUE(view.delta_for_saving);
  EXPECT_EQ(*view.delta_for_saving, report["settings"]["delta"].get<double>());
  settings.wanted_saving = 0.9;
  const BlocksView none = blocks_view(model, settings);
  EXPECT_FALSE(none.delta_for_saving);
  EXPECT_THAT(none.sweep.notes, ElementsAre(HasSubstr("no delta saves 90.0 %")));
}

TEST(BlocksModel, MatricesOutlineTheBlocks) {
  const OpenProfile open;
  const BlocksModel model = read_blocks_model(open.reader(), all_samples(open.reader()), {});
  BlocksSettings settings = at(0.5);
  settings.show_divergence = true;
  const BlocksView view = blocks_view(model, settings);
  ASSERT_EQ(view.matrices.matrices.size(), 2u);  // KV heads
  const Matrix& matrix = view.matrices.matrices[1];
  EXPECT_EQ(matrix.label, "KV head 1");
  EXPECT_DOUBLE_EQ(matrix.at(1, 2), 0.125);
  EXPECT_DOUBLE_EQ(matrix.at(2, 2), 0);
  ASSERT_EQ(matrix.outlines.size(), 3u);  // 0, 1 to 2, 3
  EXPECT_EQ(matrix.outlines[1].first, 1);
  EXPECT_EQ(matrix.outlines[1].last, 2);
  EXPECT_EQ(matrix.outlines[2].first, 3);
  ASSERT_EQ(view.counts.bars.size(), 1u);
  EXPECT_DOUBLE_EQ(view.counts.bars[0].bars[1].height, 3);
  EXPECT_EQ(view.matrices.table.rows.size(), 8u);

  settings.show_divergence = false;
  const Chart one = matrix_chart(model, settings, 0);
  EXPECT_THAT(one.title, HasSubstr("KV head 0, 3 blocks"));
  ASSERT_EQ(one.table.rows.size(), 16u);
  EXPECT_DOUBLE_EQ(one.table.rows[6][2].number, 0.875);
  EXPECT_EQ(one.table.rows[6][3].text, "yes");
  EXPECT_EQ(one.table.rows[1][3].text, "no");
  EXPECT_THAT(refusal([&] { matrix_chart(model, settings, 2); }), HasSubstr("no KV head 2"));
}

TEST(BlocksModel, RefusesWhatTheProfileLacks) {
  const OpenProfile open({.samples = 2, .js = false});
  EXPECT_THAT(refusal([&] { read_blocks_model(open.reader(), {0}, {}); }),
              HasSubstr("--capture js"));
  EXPECT_THAT(refusal([&] {
                read_gate_model(open.reader(), {0}, {16, 113});
              }),
              HasSubstr("recent=113"));
}

}  // namespace
}  // namespace kvatlas::viewer
