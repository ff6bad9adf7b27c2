// SPDX-License-Identifier: Apache-2.0
#include "viewer/screens/map_feed.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace kvatlas::viewer {

MapFeed::~MapFeed() { cancel(); }

void MapFeed::cancel() {
  for (const Part& part : parts_)
    if (part.profile) part.profile->loader().cancel(this);
}

void MapFeed::set(const MapSubject& subject, const std::optional<MapSubject>& baseline) {
  cancel();
  forget_parts();
  n_tokens_ = 0;
  relative_ = false;
  problem_.clear();
  made_.clear();
  if (!subject.profile || subject.maps.empty()) return;
  try {
    add_part(subject);
    if (baseline && baseline->profile) add_part(*baseline);
  } catch (const Error& error) {
    problem_ = QString::fromUtf8(error.what());
    forget_parts();
  }
}

void MapFeed::forget_parts() {
  for (const Part& part : parts_)
    if (part.profile) disconnect(part.profile, nullptr, this, nullptr);
  parts_.clear();
  levels_.clear();
  finest_ = 0;
}

void MapFeed::add_part(const MapSubject& subject) {
  Part part;
  part.profile = subject.profile;
  for (const MapKey& key : subject.maps) {
    if (key.sample >= subject.profile->samples().size())
      fail(ErrorCode::usage, "the profile has no sample ", key.sample);
    const auto& header = subject.profile->header();
    if (key.layer < 0 || key.layer >= header.n_layers || key.head < 0 || key.head >= header.n_heads)
      fail(ErrorCode::usage, "there is no layer ", key.layer, ", head ", key.head, " in ",
           quoted(subject.profile->path().filename().string()), ", which has ", header.n_layers,
           " layers of ", header.n_heads, " heads");
    auto levels = subject.profile->loader().levels(key.sample);
    if (levels.empty())
      fail(
          ErrorCode::usage, "no maps were stored of the sample ",
          quoted(subject.profile->samples()[key.sample].id),
          ": 'kvatlas profile --capture maps --map-samples N' stores those of the first N samples");
    if (levels_.empty()) {
      levels_ = levels;
      n_tokens_ = subject.profile->samples()[key.sample].n_tokens;
    }
    if (subject.profile->samples()[key.sample].n_tokens != n_tokens_) relative_ = true;
    // A difference is no finer than what the baseline has stored; cells half as wide again pass.
    const bool subtracted = !parts_.empty();
    while (subtracted && finest_ + 1 < static_cast<int>(levels_.size()) &&
           3 * levels.front().side < 2 * levels_[finest_].side)
      ++finest_;
    part.maps.push_back({key, std::move(levels)});
  }
  const auto place = parts_.size();
  connect(subject.profile, &OpenedProfile::tile_arrived, this,
          [this, place](const TileKey& key, const QString& failure) {
            if (!failure.isEmpty() && place < parts_.size()) parts_[place].failures[key] = failure;
            emit arrived();
          });
  parts_.push_back(std::move(part));
}

int MapFeed::level_for(const Viewport& viewport) const {
  return levels_.empty() ? 0 : std::max(finest_, choose_level(levels_, viewport.tokens_per_pixel));
}

OtherMap MapFeed::other(const Map& map, std::int64_t side) const {
  const int level = level_like(side, map.levels);
  return {map.key, level, map.levels[level].side};
}

std::vector<TileKey> MapFeed::sources(const Part& part, const TileKey& key) const {
  const std::int64_t side = levels_[key.level].side;
  std::vector<TileKey> keys;
  for (const Map& map : part.maps) {
    const auto more = tiles_over(key, side, other(map, side));
    keys.insert(keys.end(), more.begin(), more.end());
  }
  return keys;
}

void MapFeed::want(const Viewport& viewport) {
  if (levels_.empty()) return;
  const int level = level_for(viewport);
  const MapKey& map = parts_.front().maps.front().key;
  auto plan = plan_tiles(map, level, levels_[level], viewport.tokens());
  // Something to look at first: one small tile that stands in for all.
  int coarse = level;
  while (coarse + 1 < static_cast<int>(levels_.size()) && levels_[coarse].side > kTileSide / 4)
    ++coarse;
  if (!plan.empty() && coarse > level) plan.insert(plan.begin(), {{map, coarse, 0, 0}});
  for (Part& part : parts_) {
    if (!part.profile) continue;
    std::vector<TileRequest> wanted;
    for (const TileRequest& request : plan)
      for (const TileKey& key : sources(part, request.key))
        if (!part.profile->has_tile(key) && !part.failures.contains(key))
          wanted.push_back({key, request.priority});
    part.profile->loader().request(std::move(wanted), this);
  }
}

std::shared_ptr<const Tile> MapFeed::part_tile(Part& part, const TileKey& key) {
  if (!part.profile) return nullptr;
  const std::int64_t side = levels_[key.level].side;
  const FindTile find = [&](const TileKey& wanted) { return part.profile->cache().find(wanted); };
  std::vector<std::shared_ptr<const Tile>> tiles;
  for (const Map& map : part.maps) {
    tiles.push_back(tile_over(key, side, other(map, side), find));
    if (!tiles.back()) return nullptr;
  }
  return mean_tile(tiles);
}

std::shared_ptr<const Tile> MapFeed::tile(const TileKey& key) {
  const bool single = parts_.size() == 1 && parts_.front().maps.size() == 1;
  if (single) return parts_.front().profile ? parts_.front().profile->cache().find(key) : nullptr;
  if (auto made = made_.find(key)) return made;
  auto made = part_tile(parts_.front(), key);
  if (made && parts_.size() == 2) {
    const auto less = part_tile(parts_.back(), key);
    made = less ? difference_tile(*made, *less) : nullptr;
  }
  if (made) made_.insert(key, made);
  return made;
}

std::vector<PlacedTile> MapFeed::place(const Viewport& viewport) {
  std::vector<PlacedTile> placed;
  if (levels_.empty()) return placed;
  const int level = level_for(viewport);
  const MapLevel& about = levels_[level];
  for (const TileRequest& request :
       plan_tiles(parts_.front().maps.front().key, level, about, viewport.tokens())) {
    if (request.priority != Priority::visible) break;
    PlacedTile tile_here;
    tile_here.slot = tile_here.key = request.key;
    tile_here.slot_block = about.block_tokens;
    tile_here.failed = !failure_of(request.key).isEmpty();
    for (TileKey key = request.key;
         !tile_here.failed && !tile_here.tile && key.level < static_cast<int>(levels_.size());
         key = coarser(key)) {
      tile_here.tile = tile(key);
      tile_here.key = key;
    }
    tile_here.block = levels_[tile_here.key.level].block_tokens;
    placed.push_back(std::move(tile_here));
  }
  return placed;
}

QString MapFeed::failure_of(const TileKey& key) const {
  for (const Part& part : parts_) {
    if (part.failures.empty()) continue;
    for (const TileKey& source : sources(part, key)) {
      const auto found = part.failures.find(source);
      if (found != part.failures.end()) return found->second;
    }
  }
  return {};
}

QString MapFeed::failure(const Viewport& viewport) const {
  if (levels_.empty()) return {};
  const int level = level_for(viewport);
  for (const TileRequest& request :
       plan_tiles(parts_.front().maps.front().key, level, levels_[level], viewport.tokens())) {
    if (request.priority != Priority::visible) break;
    QString found = failure_of(request.key);
    if (!found.isEmpty()) return found;
  }
  return {};
}

}  // namespace kvatlas::viewer
