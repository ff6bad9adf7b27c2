// SPDX-License-Identifier: Apache-2.0
#include "viewer/window/thumbnails.hpp"

#include <algorithm>

#include "kernels/base/error.hpp"
#include "viewer/draw/grid_picture.hpp"

namespace kvatlas::viewer {

namespace {

constexpr std::size_t kMostPixmaps = 4096;

}  // namespace

Thumbnails::~Thumbnails() {
  if (profile_) profile_->loader().cancel(this);
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
  pixmaps_.clear();
  failures_.clear();
  problem_.clear();
  range_.reset();
  level_ = -1;
  if (!profile_) return true;
  try {
    const auto levels = profile_->loader().levels(sample);
    level_ = levels.empty() ? -1 : thumbnail_level(levels);
  } catch (const Error& error) {
    problem_ = QString::fromUtf8(error.what());
  }
  return true;
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
  std::vector<TileRequest> wanted;
  const auto add = [&](const Head& head, Priority priority) {
    const TileKey key = key_of(head);
    if (!profile_->has_tile(key) && !failures_.contains(key)) wanted.push_back({key, priority});
  };
  for (const Head& head : seen_) add(head, Priority::visible);
  for (const Head& head : around) add(head, Priority::neighbour);
  profile_->loader().request(std::move(wanted), this);
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
           const TileKey key = key_of(head);
           return profile_->cache().contains(key) || failures_.contains(key);
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
  range_ = robust_range(sample, kind_);
  pixmaps_.clear();
}

std::shared_ptr<const Tile> Thumbnails::tile(const Head& head) const {
  return has_maps() ? profile_->cache().find(key_of(head)) : nullptr;
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
    range = robust_range(sample_visible(cells, 4096), kind_);
  }
  QPixmap pixmap = QPixmap::fromImage(
      thumbnail_image(*shown, Scale(kind_, range), static_cast<int>(size_ * ratio), theme_));
  pixmap.setDevicePixelRatio(ratio);
  if (pixmaps_.size() > kMostPixmaps) pixmaps_.clear();
  return &pixmaps_.emplace(key, std::move(pixmap)).first->second;
}

QString Thumbnails::failure(const Head& head) const {
  const auto found = failures_.find(key_of(head));
  return found == failures_.end() ? QString() : found->second;
}

}  // namespace kvatlas::viewer
