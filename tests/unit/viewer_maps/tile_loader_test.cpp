// SPDX-License-Identifier: Apache-2.0
#include "viewer/maps/tile_loader.hpp"

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/viewer_maps/fake_tile_source.hpp"
#include "viewer/maps/tile_cache.hpp"
#include "viewer/maps/tile_plan.hpp"

namespace kvatlas::viewer {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;
using testing_tiles::FakeControl;
using testing_tiles::FakeTileSource;

/// What a loader delivered.
class Delivered {
 public:
  void add(TileResult result) {
    const std::lock_guard lock(mutex_);
    results_.push_back(std::move(result));
    changed_.notify_all();
  }
  /// The results, once there are so many; fewer after ten seconds.
  std::vector<TileResult> wait_for(std::size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::seconds(10), [&] { return results_.size() >= count; });
    return results_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<TileResult> results_;
};

class Loader : public testing::Test {
 protected:
  void request(const std::vector<TileRequest>& wanted) { generation_ = loader_->request(wanted); }

  static TileRequest tile(std::int64_t row, std::int64_t column,
                          Priority priority = Priority::visible) {
    return {{{}, 0, row, column}, priority};
  }

  FakeControl control_;
  Delivered delivered_;
  std::uint64_t generation_ = 0;
  std::unique_ptr<TileLoader> loader_ = std::make_unique<TileLoader>(
      std::make_unique<FakeTileSource>(control_),
      [this](TileResult result) { delivered_.add(std::move(result)); });
};

TEST_F(Loader, ReadsByPriorityAndThenInOrder) {
  control_.hold();
  request({tile(9, 9)});
  control_.wait_for_reads(1);
  request({tile(5, 0, Priority::prefetch), tile(5, 1, Priority::neighbour), tile(5, 2),
           tile(5, 3, Priority::neighbour), tile(5, 4), tile(5, 2)});
  EXPECT_EQ(loader_->waiting(), 6u);  // one of them under way, and none of them twice
  control_.release();
  const auto results = delivered_.wait_for(6);
  ASSERT_THAT(results, SizeIs(6));
  std::vector<std::int64_t> columns;
  for (const auto& result : results) {
    ASSERT_NE(result.tile, nullptr);
    EXPECT_EQ(result.tile->values[0], static_cast<float>(result.key.column));
    EXPECT_EQ(result.generation, generation_);
    columns.push_back(result.key.column);
  }
  EXPECT_THAT(columns, ElementsAre(9, 2, 4, 1, 3, 0));
}

TEST_F(Loader, DropsWhatIsNoLongerWanted) {
  control_.hold();
  request({tile(9, 0), tile(9, 1), tile(9, 2)});
  control_.wait_for_reads(1);
  for (std::int64_t move = 0; move < 100; ++move) request({tile(8, 0), tile(8, 1), tile(9, 0)});
  control_.release();
  EXPECT_THAT(delivered_.wait_for(3), SizeIs(3));
  EXPECT_THAT(control_.reads(), ElementsAre(tile(9, 0).key, tile(8, 0).key, tile(8, 1).key));
  EXPECT_EQ(generation_, 101u);
}

TEST_F(Loader, CancelledIsNotRead) {
  control_.hold();
  request({tile(9, 0), tile(9, 1), tile(9, 2)});
  control_.wait_for_reads(1);
  loader_->cancel();
  EXPECT_EQ(loader_->waiting(), 1u);
  control_.release();
  request({tile(3, 3)});
  delivered_.wait_for(2);
  EXPECT_THAT(control_.reads(), ElementsAre(tile(9, 0).key, tile(3, 3).key));
}

TEST_F(Loader, AskersKeepTheirRequestsAndTakeTurns) {
  const int a = 0, b = 0;
  control_.hold();
  loader_->request({tile(9, 9)}, &a);
  control_.wait_for_reads(1);
  loader_->request({tile(1, 0), tile(1, 1), tile(7, 7), tile(1, 2, Priority::neighbour)}, &a);
  loader_->request({tile(2, 0), tile(7, 7), tile(2, 2, Priority::neighbour)}, &b);
  EXPECT_EQ(loader_->waiting(), 7u);  // what both ask for is one
  control_.release();
  delivered_.wait_for(7);
  EXPECT_THAT(control_.reads(),
              ElementsAre(tile(9, 9).key, tile(1, 0).key, tile(2, 0).key, tile(1, 1).key,
                          tile(7, 7).key, tile(1, 2).key, tile(2, 2).key));
}

TEST_F(Loader, AnAskerReplacesAndCancelsItsOwnAlone) {
  const int a = 0, b = 0;
  control_.hold();
  loader_->request({tile(9, 9)}, &a);
  control_.wait_for_reads(1);
  loader_->request({tile(1, 0), tile(1, 1)}, &a);
  loader_->request({tile(2, 0)}, &b);
  loader_->request({tile(1, 5)}, &a);
  loader_->cancel();  // of one that asked for nothing
  EXPECT_EQ(loader_->waiting(), 3u);
  loader_->cancel(&b);
  control_.release();
  delivered_.wait_for(2);
  EXPECT_THAT(control_.reads(), ElementsAre(tile(9, 9).key, tile(1, 5).key));
}

TEST_F(Loader, FailureIsOfItsTileAlone) {
  control_.fail_at(tile(7, 1).key);
  request({tile(7, 0), tile(7, 1), tile(7, 2)});
  const auto results = delivered_.wait_for(3);
  ASSERT_THAT(results, SizeIs(3));
  EXPECT_NE(results[0].tile, nullptr);
  EXPECT_THAT(results[0].failure, IsEmpty());
  EXPECT_EQ(results[1].tile, nullptr);
  EXPECT_THAT(results[1].failure, HasSubstr("chunk at [7, 1] is damaged"));
  EXPECT_NE(results[2].tile, nullptr);
}

TEST_F(Loader, EndsWhileItReadsAndDeliversNoMore) {
  control_.hold();
  request({tile(9, 0), tile(9, 1)});
  control_.wait_for_reads(1);
  std::thread end([this] { loader_.reset(); });
  control_.release();
  end.join();
  // What was under way may have been delivered before the end was asked for; the rest is not read
  // once it was.
  const auto reads = control_.reads().size();
  const auto results = delivered_.wait_for(0).size();
  EXPECT_LE(results, reads);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(control_.reads().size(), reads);
  EXPECT_EQ(delivered_.wait_for(0).size(), results);
}

TEST_F(Loader, EndsAtAnyMoment) {
  for (int round = 0; round < 200; ++round) {
    TileLoader brief(std::make_unique<FakeTileSource>(control_), [](const TileResult&) {});
    if (round % 3 != 0) brief.request({tile(round, 0), tile(round, 1), tile(round, 2)});
  }
}

TEST_F(Loader, DeliveryMayAskForMore) {
  Delivered delivered;
  TileLoader* asked = nullptr;
  TileLoader loader(std::make_unique<FakeTileSource>(control_), [&](TileResult result) {
    if (result.key.column == 0) asked->request({tile(4, 1)});
    delivered.add(std::move(result));
  });
  asked = &loader;
  loader.request({tile(4, 0)});
  EXPECT_THAT(delivered.wait_for(2), SizeIs(2));
}

/// A window onto a map that keeps what it was given.
TEST_F(Loader, PanReadsOnlyTheTilesThatComeIntoSight) {
  TileCache cache;
  const MapKey map{0, 3, 5, Reduction::maximum};
  const auto show = [&](std::int64_t first_key) {
    std::vector<TileRequest> wanted;
    for (const auto& request :
         plan_tiles(map, 0, loader_->levels(0)[0], {6000, first_key, 3 * 256, 4 * 256}))
      if (request.priority == Priority::visible && !cache.contains(request.key))
        wanted.push_back(request);
    const std::size_t before = control_.reads().size();
    request(wanted);
    for (const auto& result : delivered_.wait_for(before + wanted.size()))
      cache.insert(result.key, result.tile);
    return control_.reads().size() - before;
  };
  EXPECT_EQ(show(256), 4u * 4);   // 6000 is within a tile: four rows of four tiles
  EXPECT_EQ(show(256), 0u);       // all there
  EXPECT_EQ(show(300), 4u);       // a column more
  EXPECT_EQ(show(512), 0u);       // the same columns but the first
  EXPECT_EQ(show(256), 0u);       // back again
  EXPECT_EQ(show(4096), 4u * 4);  // elsewhere
}

}  // namespace
}  // namespace kvatlas::viewer
