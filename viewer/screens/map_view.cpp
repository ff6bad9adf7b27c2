// SPDX-License-Identifier: Apache-2.0
#include "viewer/screens/map_view.hpp"

#include <QAccessible>
#include <QMouseEvent>
#include <QPainter>
#include <QWheelEvent>
#include <algorithm>
#include <cmath>

#include "viewer/draw/map_parts.hpp"
#include "viewer/maps/viewport_moves.hpp"

namespace kvatlas::viewer {

namespace {

constexpr int kRescaleDelay = 90;  // ms without a move, before the range follows what is in sight

}  // namespace

MapView::MapView(QWidget* parent)
    : QWidget(parent),
      theme_(make_theme(false, font())),
      map_(std::make_shared<QuantisedMap>()),
      swiped_map_(std::make_shared<QuantisedMap>()) {
  setMouseTracking(true);
  setFocusPolicy(Qt::StrongFocus);
  setMinimumSize(420, 280);
  setAccessibleName(tr("Attention map"));
  rescale_soon_.setSingleShot(true);
  rescale_soon_.setInterval(kRescaleDelay);
  connect(&rescale_soon_, &QTimer::timeout, this, &MapView::rescale);
  connect(&feed_, &MapFeed::arrived, this, &MapView::tiles_came);
  connect(&swiped_feed_, &MapFeed::arrived, this, &MapView::tiles_came);
  connect(&other_feed_, &MapFeed::arrived, this, &MapView::tiles_came);
}

void MapView::set_subject(const Subject& subject) {
  const std::int64_t tokens = feed_.n_tokens();
  feed_.set(subject.map, subject.less);
  swiped_feed_.set(subject.swiped.value_or(MapSubject{}));
  MapSubject other = subject.map;
  for (MapKey& key : other.maps)
    key.reduction = key.reduction == Reduction::mean ? Reduction::maximum : Reduction::mean;
  other_feed_.set(subject.less ? MapSubject{} : std::move(other));
  scene_.several = subject.map.maps.size() > 1;
  scene_.other.clear();
  *map_ = QuantisedMap();
  *swiped_map_ = QuantisedMap();
  scene_.title = subject.title.toStdString();
  scene_.n_tokens = feed_.n_tokens();
  scene_.finest_block = feed_.levels().empty() ? 1 : feed_.finest_block();
  scene_.reduction =
      subject.map.maps.empty() ? Reduction::mean : subject.map.maps.front().reduction;
  scene_.map = feed_.levels().empty() ? nullptr : map_;
  scene_.swiped = swiped_feed_.levels().empty() ? nullptr : swiped_map_;
  scene_.swipe = scene_.swiped ? 0.25 : 1;
  scene_.swiped_scale = scene_.swiped && feed_.n_tokens() > 0
                            ? double(swiped_feed_.n_tokens()) / double(feed_.n_tokens())
                            : 1;
  scene_.notes.clear();
  if (scene_.swiped && scene_.swiped_scale != 1)
    scene_.notes.push_back(tr("lengths differ: swiped by relative position").toStdString());
  if (feed_.is_relative())
    scene_.notes.push_back(tr("lengths differ: compared by relative position").toStdString());
  settings_.difference = feed_.is_difference();
  if (!locked_) settings_.range.reset();
  added_.clear();
  hover_query_ = hover_key_ = -1;
  if (tokens != feed_.n_tokens()) {
    query_ = key_ = -1;
    scene_.region.reset();
    fitted_ = true;
  }
  if (fitted_)
    show_all();
  else
    view_moved();
}

void MapView::set_bare() {
  scene_.bare = true;
  setMinimumSize(48, 48);
}

void MapView::share_cursor(MapCursor& cursor) {
  connect(this, &MapView::hovered, &cursor,
          [this, &cursor](qint64 query, qint64 key) { cursor.move(this, query, key, n_tokens()); });
  connect(&cursor, &MapCursor::moved, this,
          [this](const QObject* by, qint64 query, qint64 key, qint64 n) {
            const auto likewise = [&](qint64 token) {
              return n > 0 && token >= 0 ? token * n_tokens() / n : -1;
            };
            if (by != this) set_hover(likewise(query), likewise(key));
          });
}

void MapView::set_theme(const Theme& theme) {
  theme_ = theme;
  repaint_all();
}

void MapView::set_tokens(TokenList tokens) {
  scene_.tokens = std::move(tokens);
  repaint_all();
}

void MapView::set_scale(ScaleKind kind, bool per_row, std::int64_t masked_keys) {
  if ((kind != settings_.kind || per_row != settings_.per_row) && !locked_) settings_.range.reset();
  settings_.kind = kind;
  settings_.per_row = per_row;
  settings_.masked_keys = masked_keys;
  rescale();
}

void MapView::set_locked(bool locked) {
  locked_ = locked;
  scene_.locked_range = locked;
  if (locked && !map_->sample().empty()) settings_.range = map_->scale().range();
  if (!locked) settings_.range.reset();
  rescale();
}

void MapView::share_range(const std::optional<Range>& range) {
  const bool same = range ? settings_.range && settings_.range->low == range->low &&
                                settings_.range->high == range->high
                          : !settings_.range;
  if (same && scene_.locked_range == range.has_value()) return;
  settings_.range = range;
  scene_.locked_range = range.has_value();
  rescale();
}

void MapView::set_overlays(Overlays overlays) {
  scene_.window = overlays.window;
  scene_.partitions = overlays.partitions;
  scene_.lanes = std::move(overlays.lanes);
  scene_.token_texts = overlays.token_texts;
  if (fitted_)
    show_all();  // lanes make the map smaller
  else
    view_moved();
}

MapLayout MapView::layout_now() const { return map_layout(QRectF(rect()), scene_); }

void MapView::limit(Viewport& viewport) const {
  const QRectF map = layout_now().map;
  viewport.width = static_cast<int>(map.width());
  viewport.height = static_cast<int>(map.height());
  viewport = limited(viewport, scene_.n_tokens);
}

void MapView::set_viewport(const Viewport& viewport) {
  Viewport wanted = viewport;
  scene_.viewport = wanted;  // whether token texts show changes the map's size
  limit(wanted);
  scene_.viewport = wanted;
  fitted_ = false;
  view_moved();
}

void MapView::show_part(const TokenRectangle& part) {
  const Viewport wanted = fitted(scene_.viewport, part, scene_.n_tokens);
  if (wanted == scene_.viewport) return;
  set_viewport(wanted);
  emit viewport_changed();
}

void MapView::show_all() {
  scene_.viewport.tokens_per_pixel = 1e9;
  limit(scene_.viewport);
  scene_.viewport.first_key = scene_.viewport.first_query = 0;
  fitted_ = true;
  view_moved();
  emit viewport_changed();
}

void MapView::view_moved() {
  limit(scene_.viewport);
  feed_.want(scene_.viewport);
  if (scene_.swiped) swiped_feed_.want(scaled(scene_.viewport, scene_.swiped_scale));
  want_other();
  tiles_came();
}

/// The rectangle's statistics need means and maxima alike.
void MapView::want_other() {
  if (scene_.region)
    other_feed_.want(scene_.viewport);
  else
    other_feed_.cancel();
}

void MapView::tiles_came() {
  map_->place(feed_.place(scene_.viewport), scene_.viewport.tokens());
  if (scene_.swiped) {
    const Viewport there = scaled(scene_.viewport, scene_.swiped_scale);
    swiped_map_->place(swiped_feed_.place(there), there.tokens());
  }
  scene_.other = scene_.region ? other_feed_.place(scene_.viewport) : std::vector<PlacedTile>();
  if (map_->sample().empty())
    rescale();
  else
    rescale_soon_.start();
  repaint_all();
}

void MapView::rescale() {
  rescale_soon_.stop();
  map_->rescale(settings_);
  if (scene_.swiped && !map_->sample().empty()) {
    ScaleSettings same = settings_;  // two maps side by side have one scale
    same.range = map_->scale().range();
    swiped_map_->rescale(same);
  }
  repaint_all();
}

void MapView::repaint_all() {
  base_ = {};
  scene_.focus = cell_at(query_, key_);
  scene_.added.clear();
  for (const auto& [query, key] : added_)
    if (const auto cell = cell_at(query, key)) scene_.added.push_back(*cell);
  update();
  emit content_changed();
}

std::int64_t MapView::block_here() const {
  return feed_.levels().empty() ? 1 : feed_.levels()[feed_.level_for(scene_.viewport)].block_tokens;
}

std::optional<TokenRectangle> MapView::cell_at(std::int64_t query, std::int64_t key) const {
  if (query < 0 || key < 0 || key > query) return std::nullopt;
  const std::int64_t block = block_here();
  return TokenRectangle{query / block * block, key / block * block, block, block};
}

std::pair<std::int64_t, std::int64_t> MapView::token_at(QPointF position) const {
  const QRectF map = layout_now().map;
  const auto& viewport = scene_.viewport;
  return {static_cast<std::int64_t>(std::floor(
              viewport.first_query + (position.y() - map.top()) * viewport.tokens_per_pixel)),
          static_cast<std::int64_t>(std::floor(
              viewport.first_key + (position.x() - map.left()) * viewport.tokens_per_pixel))};
}

void MapView::make_visible(std::int64_t query, std::int64_t key) {
  if (query < 0 || key < 0) return;
  Viewport wanted = showing(scene_.viewport, query, key);
  limit(wanted);
  if (wanted == scene_.viewport) return;
  scene_.viewport = wanted;
  view_moved();
  emit viewport_changed();
}

void MapView::set_focus_cell(std::int64_t query, std::int64_t key) {
  if (query == query_ && key == key_) return;
  const bool there = query >= 0 && key >= 0 && key <= query && query < scene_.n_tokens;
  query_ = there ? query : -1;
  key_ = there ? key : -1;
  make_visible(query_, key_);
  repaint_all();
  setAccessibleDescription(focus_text());
  QAccessibleEvent event(this, QAccessible::DescriptionChanged);
  QAccessible::updateAccessibility(&event);
  emit focus_changed(query_, key_);
}

void MapView::set_region(const std::optional<TokenRectangle>& region) {
  if (region == scene_.region) return;
  scene_.region = region;
  want_other();
  tiles_came();
  emit region_changed();
}

std::optional<RegionStatistics> MapView::region_statistics_here() const {
  return feed_.is_difference() ? std::nullopt : readout().region();
}

QString MapView::region_text() const {
  const auto found = region_statistics_here();
  return found ? readout().region_text(*found) : QString();
}

QString MapView::region_csv() const {
  const auto found = region_statistics_here();
  return found ? readout().region_csv(*found) : QString();
}

QString MapView::focus_text() const {
  if (!feed_.problem().isEmpty()) return feed_.problem();
  const bool hovering = hover_query_ >= 0;
  QString text = hovering ? readout().cell(hover_query_, hover_key_) : readout().cell(query_, key_);
  if (!added_.empty()) text += readout().sum(added_);
  return text;
}

Table MapView::table() const { return readout().table(query_); }

void MapView::toggle_added(std::int64_t query, std::int64_t key) {
  const auto cell = cell_at(query, key);
  if (!cell) return;
  if (added_.empty() && query_ >= 0) added_.emplace_back(query_, key_);
  const auto same = [&](const auto& other) { return cell_at(other.first, other.second) == cell; };
  const auto found = std::find_if(added_.begin(), added_.end(), same);
  if (found == added_.end())
    added_.emplace_back(query, key);
  else
    added_.erase(found);
  repaint_all();
}

PicturePtr MapView::picture() const {
  if (!scene_.map) return nullptr;
  MapScene still = scene_;  // it does not change with the window any more
  still.map = std::make_shared<const QuantisedMap>(*map_);
  if (scene_.swiped) still.swiped = std::make_shared<const QuantisedMap>(*swiped_map_);
  return map_picture(std::move(still), QSizeF(size()));
}

void MapView::set_hover(std::int64_t query, std::int64_t key) {
  if (query == hover_query_ && key == hover_key_) return;
  hover_query_ = query;
  hover_key_ = key;
  update();
}

void MapView::paintEvent(QPaintEvent* /*event*/) {
  QPainter painter(this);
  if (!feed_.problem().isEmpty() || !scene_.map) {
    painter.fillRect(rect(), theme_.background);
    painter.setPen(theme_.faint_text);
    painter.drawText(rect().adjusted(40, 40, -40, -40), Qt::AlignCenter | Qt::TextWordWrap,
                     feed_.problem());
    return;
  }
  const double ratio = painter.deviceTransform().m11();  // of grabs too, not of the screen alone
  if (base_.isNull() || base_.devicePixelRatio() != ratio) {
    base_ = QPixmap(size() * ratio);
    base_.setDevicePixelRatio(ratio);
    QPainter base(&base_);
    base.setRenderHint(QPainter::Antialiasing);
    paint_map(base, QRectF(rect()), theme_, scene_);
  }
  painter.drawPixmap(0, 0, base_);
  if (cell_at(hover_query_, hover_key_))
    paint_hover(painter, QRectF(rect()), theme_, scene_, hover_query_, hover_key_,
                scene_.bare ? readout().value(hover_query_, hover_key_)
                            : readout().cell(hover_query_, hover_key_));
  if (hasFocus()) {
    painter.setPen(QPen(theme_.accent, 2));
    painter.setBrush(Qt::NoBrush);
    painter.drawRect(layout_now().map.adjusted(-1, -1, 1, 1));
  }
}

void MapView::showEvent(QShowEvent* /*event*/) {
  if (scene_.map) view_moved();
}

void MapView::hideEvent(QHideEvent* /*event*/) {
  feed_.cancel();
  swiped_feed_.cancel();
  other_feed_.cancel();
}

void MapView::resizeEvent(QResizeEvent* /*event*/) {
  if (fitted_)
    show_all();
  else
    view_moved();
}

void MapView::focusInEvent(QFocusEvent* /*event*/) { update(); }
void MapView::focusOutEvent(QFocusEvent* /*event*/) { update(); }

}  // namespace kvatlas::viewer
