// SPDX-License-Identifier: Apache-2.0
#include "viewer/maps/tiles.hpp"

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "analyzer/profile/profile.hpp"
#include "base/half.hpp"
#include "tests/support/error_of.hpp"
#include "tests/unit/viewer_maps/fake_tile_source.hpp"
#include "viewer/maps/tile_cache.hpp"
#include "viewer/maps/tile_plan.hpp"

namespace kvatlas::viewer {
namespace {

using profile::Array;
using profile::Type;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;
using testing_support::error_of;

constexpr std::int64_t kLayers = 2, kHeads = 3, kTokens = 600;
constexpr std::int64_t kSide = 300;  // blocks of two tokens: 2 x 2 tiles

/// What the tests' profile holds: a power of two for each cell, zero above the diagonal.
float log2_of_cell(std::int64_t layer, std::int64_t head, std::int64_t row, std::int64_t column) {
  if (column > row) return -INFINITY;
  return -static_cast<float>(1 + (layer * 7 + head * 5 + row * 3 + column) % 20);
}

class ProfileTiles : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = std::filesystem::temp_directory_path() / "kvatlas-tiles-XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  /// A profile of one sample, after `change` to it.
  std::filesystem::path write(const std::function<void(profile::Sample&)>& change = {},
                              Type of_means = Type::f16) {
    profile::Header header;
    header.tool_version = "0.1.0";
    header.model_name = header.architecture = header.model_fingerprint = "tiny";
    header.n_layers = kLayers;
    header.n_heads = header.n_kv_heads = kHeads;
    header.head_dim = 8;
    header.vocab_size = 100;
    header.context_length = 1000;
    header.window = {0, 0};
    header.backend = "cpu";
    header.capture = header.prompts = "{}";
    header.planned_samples = 1;
    const std::vector<std::string> axes = {"layer", "head", "query_block", "key_block"};
    header.arrays = {
        {"map/block_tokens", {"level"}, "token", "Blocks.", Type::i32, {}, 0},
        {"map/mean/0", axes, profile::kLog2OfAShare, "Means.", of_means, {}, 2},
        {"map/max/0", axes, "log2 of a share", "Maxima.", Type::f32, {}, 2},
        {"map/mean/1", axes, "log2 of a share", "Means.", Type::f16, {}, 2},
    };
    profile::Sample sample;
    sample.id = "one";
    sample.tokens.assign(kTokens, 1);
    Array blocks(Type::i32, {2});
    blocks.values<std::int32_t>()[0] = 2;
    blocks.values<std::int32_t>()[1] = 4;
    Array mean(Type::f16, {kLayers, kHeads, kSide, kSide});
    Array maximum(Type::f32, mean.shape);
    std::size_t cell = 0;
    for (std::int64_t layer = 0; layer < kLayers; ++layer)
      for (std::int64_t head = 0; head < kHeads; ++head)
        for (std::int64_t row = 0; row < kSide; ++row)
          for (std::int64_t column = 0; column < kSide; ++column, ++cell) {
            const float log2 = log2_of_cell(layer, head, row, column);
            mean.values<std::uint16_t>()[cell] = float_to_f16(log2);
            maximum.values<float>()[cell] = log2 + 1;
          }
    mean.values<std::uint16_t>()[0] = float_to_f16(NAN);
    sample.arrays["map/block_tokens"] = blocks;
    sample.arrays["map/mean/0"] = mean;
    sample.arrays["map/max/0"] = maximum;
    sample.arrays["map/mean/1"] = Array(Type::f16, {kLayers, kHeads, kSide / 2, kSide / 2 - 1});
    if (change) change(sample);
    auto path = folder_ / "p.h5";
    profile::Writer writer(path, header, {});
    writer.add(sample);
    writer.finish();
    return path;
  }

  std::filesystem::path folder_;
};

TEST_F(ProfileTiles, AreSharesAtTheirPlace) {
  const auto source = profile_tiles(std::make_shared<profile::Reader>(write()));
  EXPECT_THAT(source->levels(0), ElementsAre(MapLevel{2, kSide}, MapLevel{4, kSide / 2}));
  for (const auto reduction : {Reduction::mean, Reduction::maximum})
    for (const auto& [row, column] : {std::pair{0, 0}, {1, 0}, {1, 1}}) {
      const TileKey key{{0, 1, 2, reduction}, 0, row, column};
      const Tile tile = source->read(key);
      ASSERT_EQ(tile.rows, row == 0 ? kTileSide : kSide - kTileSide);
      ASSERT_EQ(tile.columns, column == 0 ? kTileSide : kSide - kTileSide);
      const Cells cells = cells_of(tile, key);
      for (std::int64_t r = 0; r < tile.rows; ++r)
        for (std::int64_t c = 0; c < tile.columns; ++c) {
          const float log2 = log2_of_cell(1, 2, cells.first_row + r, cells.first_column + c);
          ASSERT_EQ(cells.at(r, c), std::exp2(log2 + (reduction == Reduction::maximum ? 1 : 0)));
          ASSERT_EQ(cells.is_masked(r, c), std::isinf(log2));
        }
    }
  EXPECT_TRUE(std::isnan(source->read({}).values[0]));  // stored so: not known
}

TEST_F(ProfileTiles, CodesAreShares) {
  const auto path = write(
      [](profile::Sample& sample) {
        Array& codes = sample.arrays["map/mean/0"];
        codes = Array(Type::u8, codes.shape);
        const auto values = codes.values<std::uint8_t>();
        for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<std::uint8_t>(i);
      },
      Type::u8);
  const Tile tile = profile_tiles(std::make_shared<profile::Reader>(path))->read({});
  EXPECT_EQ(tile.values[0], 0);
  for (int code = 1; code <= 254; ++code)
    EXPECT_FLOAT_EQ(tile.values[code], std::exp2(0.125F * static_cast<float>(code - 254)));
  EXPECT_TRUE(std::isnan(tile.values[255]));
}

TEST_F(ProfileTiles, RefusesWhatIsNotThere) {
  const auto source = profile_tiles(std::make_shared<profile::Reader>(write()));
  const auto message = [&](const TileKey& key) { return error_of([&] { source->read(key); }); };
  EXPECT_THAT(message({{}, 2, 0, 0}), HasSubstr("level 2"));
  EXPECT_THAT(message({{}, 0, 2, 0}), HasSubstr("no tile 2, 0"));
  EXPECT_THAT(message({{}, 0, 0, -1}), HasSubstr("no tile"));
  EXPECT_THAT(message({{0, 2, 0}, 0, 0, 0}), HasSubstr("layer 2"));
  EXPECT_THAT(message({{0, 0, 3}, 0, 0, 0}), HasSubstr("head 3"));
  EXPECT_THAT(message({{1, 0, 0}, 0, 0, 0}), HasSubstr("sample 1"));
  EXPECT_THAT(message({{}, 1, 0, 0}), HasSubstr("[2, 3, 150, 149]"));  // not square
}

TEST_F(ProfileTiles, SampleWithoutMapsHasNoLevels) {
  const auto path = write([](profile::Sample& sample) { sample.arrays.clear(); });
  EXPECT_THAT(profile_tiles(std::make_shared<profile::Reader>(path))->levels(0), IsEmpty());
}

TEST_F(ProfileTiles, DamagedLevelsAreToldWhenAskedFor) {
  const auto path = write([](profile::Sample& sample) {
    sample.arrays["map/block_tokens"].values<std::int32_t>()[1] = 5;
  });
  const auto source = profile_tiles(std::make_shared<profile::Reader>(path));
  EXPECT_THAT(error_of([&] { source->levels(0); }),
              HasSubstr("[2, 5], expected blocks that double"));
  EXPECT_THAT(error_of([&] { source->read({}); }), HasSubstr("[2, 5]"));
}

TEST(ChooseLevel, CoarsestWithACellAPixel) {
  const std::vector<MapLevel> levels = {{2, 512}, {4, 256}, {8, 128}};
  EXPECT_EQ(choose_level(levels, 0.1), 0);
  EXPECT_EQ(choose_level(levels, 3.99), 0);
  EXPECT_EQ(choose_level(levels, 4), 1);
  EXPECT_EQ(choose_level(levels, 7.9), 1);
  EXPECT_EQ(choose_level(levels, 8), 2);
  EXPECT_EQ(choose_level(levels, 1e6), 2);
}

std::vector<TileKey> keys_of(const std::vector<TileRequest>& plan, Priority priority) {
  std::vector<TileKey> keys;
  for (const auto& request : plan)
    if (request.priority == priority) keys.push_back(request.key);
  return keys;
}

TEST(PlanTiles, FromTheCentreOutwardsThenTheRing) {
  const MapLevel level{1, 8192};  // 32 x 32 tiles
  const auto plan = plan_tiles({}, 0, level, {20 * 256, 4 * 256, 3 * 256, 3 * 256});
  const auto visible = keys_of(plan, Priority::visible);
  ASSERT_THAT(visible, SizeIs(9));
  EXPECT_EQ(visible.front(), (TileKey{{}, 0, 21, 5}));
  for (std::size_t i = 5; i < 9; ++i)  // the corners are last
    EXPECT_TRUE(visible[i].row != 21 && visible[i].column != 5);
  EXPECT_THAT(keys_of(plan, Priority::neighbour), SizeIs(25 - 9));
  EXPECT_EQ(plan[8].priority, Priority::visible);
  EXPECT_EQ(plan[9].priority, Priority::neighbour);
}

TEST(PlanTiles, LeavesOutWhatIsAboveTheDiagonalOrOutside) {
  const MapLevel level{2, 600};  // 3 x 3 tiles of 512 tokens
  EXPECT_THAT(plan_tiles({}, 0, level, {0, 0, 1200, 1200}), SizeIs(6));
  EXPECT_THAT(plan_tiles({}, 0, level, {-500, -500, 5000, 5000}), SizeIs(6));
  EXPECT_THAT(keys_of(plan_tiles({}, 0, level, {0, 1100, 400, 50}), Priority::visible), IsEmpty());
  EXPECT_THAT(plan_tiles({}, 0, level, {5000, 0, 100, 100}), IsEmpty());
  EXPECT_THAT(plan_tiles({}, 0, level, {0, 0, 0, 0}), IsEmpty());
  // One pixel over a tile's edge is one tile more.
  EXPECT_THAT(keys_of(plan_tiles({}, 0, level, {512, 0, 512, 512}), Priority::visible), SizeIs(1));
  EXPECT_THAT(keys_of(plan_tiles({}, 0, level, {512, 0, 512, 513}), Priority::visible), SizeIs(2));
}

std::shared_ptr<const Tile> tile_of(std::size_t values) {
  return std::make_shared<const Tile>(
      Tile{1, static_cast<std::int64_t>(values), std::vector<float>(values)});
}

TEST(TileCache, DropsWhatWasNotUsedForLongest) {
  const auto tile = tile_of(100);
  TileCache cache(3 * tile->bytes());
  for (std::int64_t column = 0; column < 3; ++column) cache.insert({{}, 0, 9, column}, tile);
  EXPECT_EQ(cache.bytes(), 3 * tile->bytes());
  EXPECT_NE(cache.find({{}, 0, 9, 0}), nullptr);  // so 1 is now the oldest
  cache.insert({{}, 0, 9, 3}, tile);
  EXPECT_FALSE(cache.contains({{}, 0, 9, 1}));
  EXPECT_TRUE(cache.contains({{}, 0, 9, 0}));
  EXPECT_EQ(cache.size(), 3u);
  EXPECT_EQ(cache.bytes(), 3 * tile->bytes());

  cache.insert({{}, 0, 9, 0}, tile_of(50));  // in the place of the old one
  EXPECT_EQ(cache.size(), 3u);
  EXPECT_LT(cache.bytes(), 3 * tile->bytes());
  cache.insert({{}, 0, 9, 4}, tile_of(1000));  // larger than the cache
  EXPECT_FALSE(cache.contains({{}, 0, 9, 4}));
  EXPECT_EQ(cache.size(), 3u);
  cache.set_most_bytes(tile->bytes());
  EXPECT_LE(cache.bytes(), tile->bytes());
  cache.clear();
  EXPECT_EQ(cache.bytes(), 0);
  EXPECT_EQ(cache.find({{}, 0, 9, 0}), nullptr);
}

TEST(TileCache, KeysDifferInEveryPart) {
  TileCache cache;
  cache.insert({{1, 2, 3, Reduction::mean}, 4, 5, 6}, tile_of(1));
  EXPECT_TRUE(cache.contains({{1, 2, 3, Reduction::mean}, 4, 5, 6}));
  for (const TileKey& other : std::vector<TileKey>{{{0, 2, 3, Reduction::mean}, 4, 5, 6},
                                                   {{1, 0, 3, Reduction::mean}, 4, 5, 6},
                                                   {{1, 2, 0, Reduction::mean}, 4, 5, 6},
                                                   {{1, 2, 3, Reduction::maximum}, 4, 5, 6},
                                                   {{1, 2, 3, Reduction::mean}, 0, 5, 6},
                                                   {{1, 2, 3, Reduction::mean}, 4, 0, 6},
                                                   {{1, 2, 3, Reduction::mean}, 4, 5, 0}})
    EXPECT_FALSE(cache.contains(other));
}

}  // namespace
}  // namespace kvatlas::viewer
