// SPDX-License-Identifier: Apache-2.0
// A profile's maps as tiles.
#include <algorithm>
#include <array>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "analyzer/profile/checked_arrays.hpp"
#include "analyzer/profile/statistics.hpp"
#include "base/error.hpp"
#include "viewer/maps/tiles.hpp"

namespace kvatlas::viewer {

namespace {

/// The levels that a sample says it has: blocks that double from level to level.
std::vector<MapLevel> read_levels(const profile::Reader& reader, std::size_t sample) {
  const auto shape = reader.shape(sample, profile::name::kMapBlocks);
  if (shape.size() != 1 || shape[0] < 1 || shape[0] > profile::kMapLevels)
    fail(ErrorCode::unreadable, profile::name::kMapBlocks, " has sizes ", list_str(shape),
         ", expected 1 to ", profile::kMapLevels, " levels");
  const auto stored = reader.array(sample, profile::name::kMapBlocks);
  if (stored.type != profile::Type::i32)
    fail(ErrorCode::unreadable, profile::name::kMapBlocks, " is ", profile::type_name(stored.type),
         ", expected int32");
  const std::int64_t n_tokens = reader.samples()[sample].n_tokens;
  std::vector<MapLevel> levels;
  for (const std::int64_t block : stored.values<std::int32_t>()) {
    if (block < 1 || (!levels.empty() && block != 2 * levels.back().block_tokens))
      fail(ErrorCode::unreadable, profile::name::kMapBlocks, " is ",
           list_str(stored.values<std::int32_t>()), ", expected blocks that double");
    levels.push_back({block, (n_tokens + block - 1) / block});
  }
  return levels;
}

class ProfileTiles : public TileSource {
 public:
  explicit ProfileTiles(std::shared_ptr<const profile::Reader> profile)
      : reader_(std::move(profile)) {
    samples_.resize(reader_->samples().size());
    for (std::size_t sample = 0; sample < samples_.size(); ++sample) {
      try {
        if (reader_->has(sample, profile::name::kMapBlocks))
          samples_[sample].levels = read_levels(*reader_, sample);
      } catch (const Error& error) {
        samples_[sample].damage = error.what();  // the other samples' maps can be shown
      }
    }
  }

  std::vector<MapLevel> levels(std::size_t sample) const override {
    if (sample >= samples_.size())
      fail(ErrorCode::internal, "sample ", sample, " of ", samples_.size());
    if (!samples_[sample].damage.empty()) fail(ErrorCode::unreadable, samples_[sample].damage);
    return samples_[sample].levels;
  }

  Tile read(const TileKey& key) override {
    const auto sample_levels = levels(key.map.sample);
    if (key.level < 0 || key.level >= static_cast<int>(sample_levels.size()))
      fail(ErrorCode::internal, "level ", key.level, " of ", sample_levels.size());
    const std::int64_t side = sample_levels[key.level].side;
    const std::string name = profile::map_name(key.map.reduction == Reduction::maximum, key.level);
    const profile::Header& header = reader_->header();
    require_shape(key.map.sample, name, side);
    const std::int64_t tiles = (side + kTileSide - 1) / kTileSide;
    if (key.map.layer < 0 || key.map.layer >= header.n_layers || key.map.head < 0 ||
        key.map.head >= header.n_heads || key.row < 0 || key.row >= tiles || key.column < 0 ||
        key.column >= tiles)
      fail(ErrorCode::internal, "no tile ", key.row, ", ", key.column, " of layer ", key.map.layer,
           ", head ", key.map.head, " in ", quoted(name));
    const std::array start = {key.map.layer, key.map.head, key.row * kTileSide,
                              key.column * kTileSide};
    const std::array<std::int64_t, 4> extent = {1, 1, std::min(kTileSide, side - start[2]),
                                                std::min(kTileSide, side - start[3])};
    return {extent[2], extent[3],
            profile::shares_of(reader_->block(key.map.sample, name, start, extent), name)};
  }

 private:
  struct SampleMaps {
    std::vector<MapLevel> levels;
    std::string damage;
    std::set<std::string> checked;  // arrays whose sizes are as they should be
  };

  /// Opening an array costs as much as reading a tile of it, so each is looked at once.
  void require_shape(std::size_t sample, const std::string& name, std::int64_t side) {
    if (samples_[sample].checked.contains(name)) return;
    const auto shape = reader_->shape(sample, name);
    const profile::Header& header = reader_->header();
    if (shape != std::vector<std::int64_t>{header.n_layers, header.n_heads, side, side})
      fail(ErrorCode::unreadable, quoted(name), " has sizes ", list_str(shape), ", expected [",
           header.n_layers, ", ", header.n_heads, ", ", side, ", ", side, "]");
    samples_[sample].checked.insert(name);
  }

  std::shared_ptr<const profile::Reader> reader_;
  std::vector<SampleMaps> samples_;
};

}  // namespace

std::unique_ptr<TileSource> profile_tiles(std::shared_ptr<const profile::Reader> profile) {
  return std::make_unique<ProfileTiles>(std::move(profile));
}

}  // namespace kvatlas::viewer
