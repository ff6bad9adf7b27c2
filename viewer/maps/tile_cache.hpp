// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <list>
#include <memory>
#include <unordered_map>
#include <utility>

#include "viewer/maps/tiles.hpp"

namespace kvatlas::viewer {

/// The tiles that were used last, in a limited number of bytes. Only the thread that paints may use
/// it.
class TileCache {
 public:
  static constexpr std::int64_t kDefaultBytes = std::int64_t{256} << 20;

  explicit TileCache(std::int64_t most_bytes = kDefaultBytes) : most_bytes_(most_bytes) {}

  /// The tile, which now counts as used last; nullptr if it is not here.
  std::shared_ptr<const Tile> find(const TileKey& key);
  bool contains(const TileKey& key) const { return places_.contains(key); }
  /// Stores a tile in place of one with the same key, and drops the tiles that were not used for
  /// longest. A tile larger than the whole cache is not stored.
  void insert(const TileKey& key, std::shared_ptr<const Tile> tile);
  void clear();
  void set_most_bytes(std::int64_t most_bytes);

  std::int64_t bytes() const { return bytes_; }
  std::size_t size() const { return places_.size(); }

 private:
  using Entry = std::pair<TileKey, std::shared_ptr<const Tile>>;
  void drop(std::list<Entry>::iterator entry);
  void shrink();

  std::int64_t most_bytes_, bytes_ = 0;
  std::list<Entry> entries_;  // The tile that was used last is the first.
  std::unordered_map<TileKey, std::list<Entry>::iterator, TileKeyHash> places_;
};

}  // namespace kvatlas::viewer
