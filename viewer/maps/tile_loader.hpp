// SPDX-License-Identifier: Apache-2.0
// Reads tiles beside the thread that paints.
//
//   TileLoader loader(profile_tiles(profile), [](TileResult result) { … });
//   loader.request(plan_tiles(map, level, levels[level], visible), this);   // at every move
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "viewer/maps/tile_plan.hpp"
#include "viewer/maps/tiles.hpp"

namespace kvatlas::viewer {

struct TileResult {
  TileKey key;
  std::uint64_t generation = 0;      // of the newest request() when the tile was read
  std::shared_ptr<const Tile> tile;  // nullptr: it could not be read
  std::string failure;               // then: why
};

/// One thread owns the source and the file behind it. What an asker (a view) asks for last counts:
/// what waits for it and is not asked for again is never read.
class TileLoader {
 public:
  /// `deliver` is called in the loader's thread, without a lock held; it must not throw, nor
  /// destroy the loader.
  using Deliver = std::function<void(TileResult)>;
  TileLoader(std::unique_ptr<TileSource> source, Deliver deliver);
  /// Waits for the read under way, whose tile is not delivered.
  ~TileLoader();
  TileLoader(const TileLoader&) = delete;
  TileLoader& operator=(const TileLoader&) = delete;

  /// Runs in this thread, before any tile that waits and after the jobs posted before; what else is
  /// read from the source's file is read so. It must not throw. Jobs left at the end never run.
  void post(std::function<void()> job);

  /// Replaces all that waits for this asker: by priority, and within one in the order given; askers
  /// of equal priority take turns. Each tile is read once, whoever asked, and the tile that is
  /// being read is not read again. Returns the request's generation, from 1 on.
  std::uint64_t request(std::vector<TileRequest> wanted, const void* asker = nullptr);
  /// Drops all that waits for this asker.
  void cancel(const void* asker = nullptr);

  /// The levels of a sample's maps, as TileSource's.
  std::vector<MapLevel> levels(std::size_t sample) const { return source_->levels(sample); }
  /// Tiles not read yet, that under way included.
  std::size_t waiting() const;

 private:
  struct Asker {
    const void* who = nullptr;
    std::deque<TileRequest> waiting;
  };
  void run();
  void forget(const void* who);
  TileKey take_next();

  std::unique_ptr<TileSource> source_;
  Deliver deliver_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> jobs_;
  std::deque<Asker>
      askers_;  // those that something waits for; the one whose turn it is comes first
  std::optional<TileKey> reading_;
  std::uint64_t generation_ = 0;
  bool stop_ = false;
  std::thread thread_;  // last: it uses the others
};

}  // namespace kvatlas::viewer
