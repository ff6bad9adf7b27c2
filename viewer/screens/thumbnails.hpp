// SPDX-License-Identifier: Apache-2.0
// The thumbnails of a grid of heads. They are fetched when they come into sight, and kept as
// pixmaps.
#pragma once

#include <QObject>
#include <QPixmap>
#include <QPointer>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "viewer/draw/theme.hpp"
#include "viewer/maps/overlaid.hpp"
#include "viewer/maps/scale.hpp"
#include "viewer/maps/tiles.hpp"
#include "viewer/screens/session.hpp"

namespace kvatlas::viewer {

class Thumbnails : public QObject {
  Q_OBJECT

 public:
  using QObject::QObject;
  ~Thumbnails() override;
  using Head = std::pair<std::int64_t, std::int64_t>;  // layer, head

  /// Shows the maps of a sample, or none for nullptr. False if they are shown already.
  bool set_maps(OpenedProfile* profile, std::size_t sample, Reduction reduction);
  /// Shows by how much these maps exceed the baseline's maps of the same heads; for nullptr shows
  /// the maps as they are.
  void set_baseline(OpenedProfile* baseline);
  void set_scale(ScaleKind kind, bool each_its_own);
  void set_theme(const Theme& theme);
  void set_size(int pixels);

  /// Asks for the thumbnails in sight, and those around them, that are not here yet.
  void look_at(std::vector<Head> seen, const std::vector<Head>& around);
  /// Whether each of them is here or cannot be read.
  bool is_loaded(const std::vector<Head>& heads) const;
  /// The tile of a head; nullptr while it is not here.
  const QPixmap* pixmap(const Head& head, double ratio);
  std::shared_ptr<const Tile> tile(const Head& head) const;
  /// Why a head cannot be shown; empty if it can be, or is not read yet.
  QString failure(const Head& head) const;
  /// Why there is nothing to show at all; empty if there is something.
  const QString& problem() const { return problem_; }

  OpenedProfile* profile() const { return profile_; }
  std::size_t sample() const { return sample_; }
  Reduction reduction() const { return reduction_; }
  ScaleKind kind() const { return baseline_ ? ScaleKind::linear : kind_; }
  bool each_its_own() const { return each_its_own_; }
  bool is_difference() const { return baseline_ != nullptr; }
  OpenedProfile* baseline() const { return baseline_; }
  bool has_maps() const { return profile_ && level_ >= 0; }
  /// The range that all thumbnails share; none before the first ones in sight are here.
  const std::optional<Range>& range() const { return range_; }

 signals:
  void arrived();

 private:
  TileKey key_of(const Head& head) const;
  void tile_came(const TileKey& key, const QString& failure);
  void start_anew();
  void find_baseline_level();
  bool baseline_has(const Head& head) const;
  OtherMap other(const Head& head) const;
  void find_range();

  QPointer<OpenedProfile> profile_;
  std::size_t sample_ = 0;
  Reduction reduction_ = Reduction::mean;
  int level_ = -1;
  ScaleKind kind_ = ScaleKind::log;
  bool each_its_own_ = false;
  std::optional<Range> range_;
  Theme theme_;
  int size_ = 64;
  double ratio_ = 1;  // device pixels per pixel for which the pixmaps were made
  std::vector<Head> seen_;
  std::int64_t side_ = 0;  // cells that a thumbnail is wide

  QPointer<OpenedProfile> baseline_;
  int baseline_level_ = -1;  // the baseline's level that has the most similar size
  std::int64_t baseline_side_ = 0;
  std::size_t baseline_sample_ = 0;
  mutable TileCache differences_;
  std::unordered_map<TileKey, QPixmap, TileKeyHash> pixmaps_;
  std::unordered_map<TileKey, QString, TileKeyHash> failures_;
  QString problem_;
};

}  // namespace kvatlas::viewer
