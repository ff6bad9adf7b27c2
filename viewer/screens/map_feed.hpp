// SPDX-License-Identifier: Apache-2.0
// Fetches the tiles for what a map view shows: a map, the mean of several, or a difference.
#pragma once

#include <QObject>
#include <QPointer>
#include <optional>
#include <unordered_map>
#include <vector>

#include "viewer/maps/overlaid.hpp"
#include "viewer/maps/quantised_map.hpp"
#include "viewer/screens/session.hpp"

namespace kvatlas::viewer {

/// The maps of a profile whose mean is shown; the first one decides length and levels.
struct MapSubject {
  QPointer<OpenedProfile> profile;
  std::vector<MapKey> maps;
};

class MapFeed : public QObject {
  Q_OBJECT

 public:
  explicit MapFeed(QObject* parent = nullptr) : QObject(parent) {}
  ~MapFeed() override;

  /// Shows `subject`, or the difference of `subject` and `baseline`. An empty subject shows
  /// nothing.
  void set(const MapSubject& subject, const std::optional<MapSubject>& baseline = {});

  /// Why there is nothing to show; empty if there is something.
  const QString& problem() const { return problem_; }
  const std::vector<MapLevel>& levels() const { return levels_; }
  std::int64_t n_tokens() const { return n_tokens_; }
  bool is_difference() const { return parts_.size() == 2; }
  /// Whether maps of prompts of other length take part, laid over by relative position.
  bool is_relative() const { return relative_; }
  /// The level to show: of a difference no finer than what the baseline has stored.
  int level_for(const Viewport& viewport) const;
  /// Tokens that a block of the finest such level is wide; there must be levels.
  std::int64_t finest_block() const { return levels_[finest_].block_tokens; }

  /// Asks for those tiles in sight, and in the ring around them, that are not here yet.
  void want(const Viewport& viewport);
  /// Drops all requests that still wait.
  void cancel();
  /// The tiles that can be shown now.
  std::vector<PlacedTile> place(const Viewport& viewport);
  /// Why tiles in sight could not be read; empty if none failed.
  QString failure(const Viewport& viewport) const;

 signals:
  void arrived();

 private:
  struct Map {
    MapKey key;
    std::vector<MapLevel> levels;
  };
  struct Part {
    QPointer<OpenedProfile> profile;
    std::vector<Map> maps;
    std::unordered_map<TileKey, QString, TileKeyHash> failures;
  };

  void add_part(const MapSubject& subject);
  void forget_parts();
  OtherMap other(const Map& map, std::int64_t side) const;
  /// The tile of a part, laid over the tile of the first map; nullptr while tiles are missing.
  std::shared_ptr<const Tile> part_tile(Part& part, const TileKey& key);
  std::shared_ptr<const Tile> tile(const TileKey& key);
  std::vector<TileKey> sources(const Part& part, const TileKey& key) const;
  QString failure_of(const TileKey& key) const;

  std::vector<Part> parts_;  // what is shown, and what is subtracted
  std::vector<MapLevel> levels_;
  int finest_ = 0;
  std::int64_t n_tokens_ = 0;
  bool relative_ = false;
  QString problem_;
  TileCache made_;  // computed tiles: means and differences
};

}  // namespace kvatlas::viewer
