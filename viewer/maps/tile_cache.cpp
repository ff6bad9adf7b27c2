// SPDX-License-Identifier: Apache-2.0
#include "viewer/maps/tile_cache.hpp"

namespace kvatlas::viewer {

std::shared_ptr<const Tile> TileCache::find(const TileKey& key) {
  const auto place = places_.find(key);
  if (place == places_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, place->second);
  return place->second->second;
}

void TileCache::insert(const TileKey& key, std::shared_ptr<const Tile> tile) {
  if (const auto place = places_.find(key); place != places_.end()) drop(place->second);
  if (tile->bytes() > most_bytes_) return;
  bytes_ += tile->bytes();
  entries_.emplace_front(key, std::move(tile));
  places_[key] = entries_.begin();
  shrink();
}

void TileCache::clear() {
  places_.clear();
  entries_.clear();
  bytes_ = 0;
}

void TileCache::set_most_bytes(std::int64_t most_bytes) {
  most_bytes_ = most_bytes;
  shrink();
}

void TileCache::drop(std::list<Entry>::iterator entry) {
  bytes_ -= entry->second->bytes();
  places_.erase(entry->first);
  entries_.erase(entry);
}

void TileCache::shrink() {
  while (bytes_ > most_bytes_ && !entries_.empty()) drop(std::prev(entries_.end()));
}

}  // namespace kvatlas::viewer
