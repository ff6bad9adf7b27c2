// SPDX-License-Identifier: Apache-2.0
// What a map says in words and numbers about a cell or a rectangle, and as a table.
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

/// Reads from a scene, which must outlive it, at the level in sight.
class MapReadout {
  Q_DECLARE_TR_FUNCTIONS(MapReadout)

 public:
  explicit MapReadout(const MapScene& scene) : scene_(scene) {}

  /// Place, texts, value and rank of a cell; empty outside the map.
  QString cell(std::int64_t query, std::int64_t key) const;
  /// The value of a cell alone.
  QString value(std::int64_t query, std::int64_t key) const;
  /// A sentence about all of these cells together.
  QString sum(const std::vector<std::pair<std::int64_t, std::int64_t>>& cells) const;

  /// Statistics of the scene's rectangle, as far as its tiles are here; none without a rectangle.
  std::optional<RegionStatistics> region() const;
  QString region_text(const RegionStatistics& found) const;
  QString region_csv(const RegionStatistics& found) const;

  /// The keys in sight of a query, the greatest first; query -1 stands for all queries in sight.
  Table table(std::int64_t query) const;

 private:
  /// Of the map that is seen there.
  std::optional<QuantisedMap::Value> value_at(std::int64_t query, std::int64_t key) const;

  const MapScene& scene_;
};

}  // namespace kvatlas::viewer
