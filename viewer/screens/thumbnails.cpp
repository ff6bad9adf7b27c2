// SPDX-License-Identifier: Apache-2.0
#include "viewer/screens/thumbnails.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "viewer/draw/grid_picture.hpp"

namespace kvatlas::viewer {

namespace {

constexpr std::size_t kMostPixmaps = 4096;

}  // namespace

Thumbnails::~Thumbnails() {
  for (OpenedProfile* profile : {profile_.data(), baseline_.data()})
    if (profile) profile->loader().cancel(this);
}

void Thumbnails::start_anew() {
  pixmaps_.clear();
  differences_.clear();
  failures_.clear();
  range_.reset();
}

bool Thumbnails::set_maps(OpenedProfile* profile, std::size_t sample, Reduction reduction) {
  if (profile_ == profile && sample_ == sample && reduction_ == reduction && level_ >= 0)
    return false;
  if (profile_ != profile) {
    if (profile_) {
      disconnect(profile_, nullptr, this, nullptr);
      profile_->loader().cancel(this);
    }
    if (profile) connect(profile, &OpenedProfile::tile_arrived, this, &Thumbnails::tile_came);
  }
  profile_ = profile;
  sample_ = sample;
  reduction_ = reduction;
  start_anew();
  problem_.clear();
  level_ = -1;
  if (!profile_) return true;
  try {
    const auto levels = profile_->loader().levels(sample);
    level_ = levels.empty() ? -1 : thumbnail_level(levels);
    side_ = level_ < 0 ? 0 : levels[level_].side;
  } catch (const Error& error) {
    problem_ = QString::fromUtf8(error.what());
  }
  find_baseline_level();
  return true;
}

void Thumbnails::set_baseline(OpenedProfile* baseline) {
  if (baseline == baseline_) return;
  if (baseline_) {
    disconnect(baseline_, nullptr, this, nullptr);
    baseline_->loader().cancel(this);
  }
  baseline_ = baseline;
  if (baseline)
    connect(baseline, &OpenedProfile::tile_arrived, this,
            [this](const TileKey& key, const QString& failure) {
              if (!failure.isEmpty() && key.level == baseline_level_)
                failures_[key_of({key.map.layer, key.map.head})] = failure;
              find_range();
              emit arrived();
            });
  start_anew();
  find_baseline_level();
}

void Thumbnails::find_baseline_level() {
  baseline_level_ = -1;
  if (!baseline_ || !has_maps() || baseline_->samples().empty()) return;
  baseline_sample_ = std::min(sample_, baseline_->samples().size() - 1);
  try {
    const auto levels = baseline_->loader().levels(baseline_sample_);
    baseline_level_ = level_like(side_, levels);
    if (baseline_level_ >= 0) baseline_side_ = levels[baseline_level_].side;
  } catch (const Error&) {
    baseline_level_ = -1;  // failure() tells
  }
}

bool Thumbnails::baseline_has(const Head& head) const {
  return baseline_level_ >= 0 && head.first < baseline_->header().n_layers &&
         head.second < baseline_->header().n_heads;
}

OtherMap Thumbnails::other(const Head& head) const {
  return {{baseline_sample_, head.first, head.second, reduction_}, baseline_level_, baseline_side_};
}

void Thumbnails::set_scale(ScaleKind kind, bool each_its_own) {
  if (kind == kind_ && each_its_own == each_its_own_) return;
  kind_ = kind;
  each_its_own_ = each_its_own;
  range_.reset();
  pixmaps_.clear();
  find_range();
}

void Thumbnails::set_theme(const Theme& theme) {
  theme_ = theme;
  pixmaps_.clear();
}

void Thumbnails::set_size(int pixels) {
  size_ = pixels;
  pixmaps_.clear();
}

TileKey Thumbnails::key_of(const Head& head) const {
  return {{sample_, head.first, head.second, reduction_}, level_, 0, 0};
}

void Thumbnails::look_at(std::vector<Head> seen, const std::vector<Head>& around) {
  seen_ = std::move(seen);
  if (!has_maps()) return;
  std::vector<TileRequest> wanted, of_baseline;
  const auto add = [&](const Head& head, Priority priority) {
    const TileKey key = key_of(head);
    if (failures_.contains(key)) return;
    if (!profile_->has_tile(key)) wanted.push_back({key, priority});
    if (!baseline_ || !baseline_has(head)) return;
    for (const TileKey& there : tiles_over(key, side_, other(head)))
      if (!baseline_->has_tile(there)) of_baseline.push_back({there, priority});
  };
  for (const Head& head : seen_) add(head, Priority::visible);
  for (const Head& head : around) add(head, Priority::neighbour);
  profile_->loader().request(std::move(wanted), this);
  if (baseline_) baseline_->loader().request(std::move(of_baseline), this);
  find_range();
}

void Thumbnails::tile_came(const TileKey& key, const QString& failure) {
  if (key.level != level_ || key.map.sample != sample_ || key.map.reduction != reduction_) return;
  if (!failure.isEmpty()) failures_[key] = failure;
  find_range();
  emit arrived();
}

bool Thumbnails::is_loaded(const std::vector<Head>& heads) const {
  return has_maps() && std::all_of(heads.begin(), heads.end(), [this](const Head& head) {
           return tile(head) || !failure(head).isEmpty();
         });
}

/// Of the thumbnails that were first in sight: colours stay as one scrolls.
void Thumbnails::find_range() {
  if (each_its_own_ || range_ || !is_loaded(seen_)) return;
  std::vector<Cells> cells;
  std::vector<std::shared_ptr<const Tile>> tiles;
  for (const Head& head : seen_)
    if (auto found = tile(head)) {
      cells.push_back(cells_of(*found, key_of(head)));
      tiles.push_back(std::move(found));
    }
  const auto sample = sample_visible(cells, 16384);
  if (sample.empty()) return;
  range_ = baseline_ ? symmetric_range(sample) : robust_range(sample, kind_);
  pixmaps_.clear();
}

std::shared_ptr<const Tile> Thumbnails::tile(const Head& head) const {
  if (!has_maps()) return nullptr;
  const TileKey key = key_of(head);
  auto own = profile_->cache().find(key);
  if (!own || !baseline_) return own;
  if (auto known = differences_.find(key)) return known;
  if (!baseline_has(head)) return nullptr;
  const auto less = tile_over(key, side_, other(head), [this](const TileKey& wanted) {
    return baseline_->cache().find(wanted);
  });
  if (!less) return nullptr;
  auto difference = difference_tile(*own, *less);
  differences_.insert(key, difference);
  return difference;
}

const QPixmap* Thumbnails::pixmap(const Head& head, double ratio) {
  if (ratio != ratio_) {
    pixmaps_.clear();
    ratio_ = ratio;
  }
  const TileKey key = key_of(head);
  const auto found = pixmaps_.find(key);
  if (found != pixmaps_.end()) return &found->second;
  const auto shown = tile(head);
  if (!shown) return nullptr;
  Range range{1e-6, 1};
  if (range_ && !each_its_own_) {
    range = *range_;
  } else {
    const std::vector<Cells> cells = {cells_of(*shown, key)};
    const auto sample = sample_visible(cells, 4096);
    range = baseline_ ? symmetric_range(sample) : robust_range(sample, kind_);
  }
  Theme theme = theme_;
  if (baseline_) theme.colours = ColourMap::blue_white_brown;
  QPixmap pixmap = QPixmap::fromImage(
      thumbnail_image(*shown, Scale(kind(), range), static_cast<int>(size_ * ratio), theme));
  pixmap.setDevicePixelRatio(ratio);
  if (pixmaps_.size() > kMostPixmaps) pixmaps_.clear();
  return &pixmaps_.emplace(key, std::move(pixmap)).first->second;
}

QString Thumbnails::failure(const Head& head) const {
  const auto found = failures_.find(key_of(head));
  if (found != failures_.end()) return found->second;
  if (baseline_ && baseline_level_ < 0) return tr("the baseline has no maps");
  return baseline_ && !baseline_has(head) ? tr("the baseline has no such head") : QString();
}

}  // namespace kvatlas::viewer
