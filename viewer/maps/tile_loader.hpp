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
  std::uint64_t generation = 0;      // number of the newest request() when the tile was read
  std::shared_ptr<const Tile> tile;  // nullptr if it could not be read
  std::string failure;               // why it could not be read
};

/// A thread that alone uses the source and the file behind it. Of each asker, which is a view, the
/// newest request counts: tiles that wait and are not asked for again are never read.
class TileLoader {
 public:
  /// `deliver` is called in the loader's thread while no lock is held. It must neither throw nor
  /// destroy the loader.
  using Deliver = std::function<void(TileResult)>;
  TileLoader(std::unique_ptr<TileSource> source, Deliver deliver);
  /// Waits for the tile that is being read, which is not delivered.
  ~TileLoader();
  TileLoader(const TileLoader&) = delete;
  TileLoader& operator=(const TileLoader&) = delete;

  /// Runs a job in the loader's thread, before all tiles that wait and after all jobs posted
  /// before. Everything else that is read from the source's file is read by such jobs. A job must
  /// not throw. Jobs that wait when the loader is destroyed never run.
  void post(std::function<void()> job);

  /// Replaces everything that waits for this asker. Tiles are read by priority, and in the order
  /// given where priorities are equal; askers of equal priority take turns. A tile is read once
  /// even if several ask for it, and one that is being read is not read again. Returns the
  /// generation of the request, counted from 1.
  std::uint64_t request(std::vector<TileRequest> wanted, const void* asker = nullptr);
  /// Drops everything that waits for this asker.
  void cancel(const void* asker = nullptr);

  /// The levels of a sample's maps, as TileSource gives them.
  std::vector<MapLevel> levels(std::size_t sample) const { return source_->levels(sample); }
  /// Number of tiles that are not read yet, including the one that is being read.
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
      askers_;  // Askers that wait for something; the one whose turn it is comes first.
  std::optional<TileKey> reading_;
  std::uint64_t generation_ = 0;
  bool stop_ = false;
  std::thread thread_;  // declared last, for it uses the other members
};

}  // namespace kvatlas::viewer
