// SPDX-License-Identifier: Apache-2.0
// What a map says in words and numbers: a cell, a rectangle, a table.
#pragma once

#include <QCoreApplication>
#include <QString>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "viewer/draw/map_scene.hpp"
#include "viewer/maps/region.hpp"

namespace kvatlas::viewer {

/// Of a scene that outlives it, at the level in sight, whose blocks are of so many tokens.
class MapReadout {
  Q_DECLARE_TR_FUNCTIONS(MapReadout)

 public:
  MapReadout(const MapScene& scene, std::int64_t block) : scene_(scene), block_(block) {}

  /// Place, texts, value and rank; empty outside of the map.
  QString cell(std::int64_t query, std::int64_t key) const;
  /// The value alone.
  QString value(std::int64_t query, std::int64_t key) const;
  /// What these cells have together.
  QString sum(const std::vector<std::pair<std::int64_t, std::int64_t>>& cells) const;

  /// Of the scene's rectangle, as far as its tiles are here; nothing without one.
  std::optional<RegionStatistics> region() const;
  QString region_text(const RegionStatistics& found) const;
  QString region_csv(const RegionStatistics& found) const;

  /// The keys in sight of a query, the greatest first; of all queries in sight if it is -1.
  Table table(std::int64_t query) const;

 private:
  const MapScene& scene_;
  std::int64_t block_;
};

}  // namespace kvatlas::viewer
