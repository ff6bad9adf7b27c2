// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <unordered_set>
#include <vector>

#include "base/error.hpp"
#include "viewer/maps/tiles.hpp"

namespace kvatlas::viewer::testing_tiles {

/// What a fake source does, and has done; outlives it.
class FakeControl {
 public:
  /// Reads wait until release().
  void hold() {
    const std::lock_guard lock(mutex_);
    held_ = true;
  }
  void release() {
    const std::lock_guard lock(mutex_);
    held_ = false;
    changed_.notify_all();
  }
  void fail_at(const TileKey& key) {
    const std::lock_guard lock(mutex_);
    failing_.insert(key);
  }
  /// Returns once so many reads have begun.
  void wait_for_reads(std::size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return reads_.size() >= count; });
  }
  std::vector<TileKey> reads() {
    const std::lock_guard lock(mutex_);
    return reads_;
  }

  void read(const TileKey& key) {
    std::unique_lock lock(mutex_);
    reads_.push_back(key);
    changed_.notify_all();
    changed_.wait(lock, [&] { return !held_; });
    if (failing_.contains(key))
      fail(ErrorCode::unreadable, "chunk at [", key.row, ", ", key.column, "] is damaged");
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool held_ = false;
  std::unordered_set<TileKey, TileKeyHash> failing_;
  std::vector<TileKey> reads_;
};

/// Maps of 8192 tokens a side in levels of blocks 1, 2, 4, …; a tile is one cell, its column.
class FakeTileSource : public TileSource {
 public:
  static constexpr std::int64_t kTokens = 8192;

  explicit FakeTileSource(FakeControl& control) : control_(control) {}

  std::vector<MapLevel> levels(std::size_t /*sample*/) const override {
    std::vector<MapLevel> levels;
    for (std::int64_t block = 1; block <= kTokens; block *= 2)
      levels.push_back({block, kTokens / block});
    return levels;
  }
  Tile read(const TileKey& key) override {
    control_.read(key);
    return {1, 1, {static_cast<float>(key.column)}};
  }

 private:
  FakeControl& control_;
};

}  // namespace kvatlas::viewer::testing_tiles
