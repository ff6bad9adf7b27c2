// SPDX-License-Identifier: Apache-2.0
#include "viewer/window/map_view.hpp"

#include <QAccessible>
#include <QMouseEvent>
#include <QPainter>
#include <QWheelEvent>
#include <algorithm>
#include <cmath>

namespace kvatlas::viewer {

namespace {

constexpr double kMostPixelsPerToken = 48, kZoomStep = 1.25, kPanPixels = 80;
constexpr int kRescaleDelay = 90;  // ms without a move, before the range follows what is in sight
constexpr double kHandleReach = 7, kClickReach = 4;

QString share_text(double value) { return QString::number(value, 'g', 4); }

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
}

void MapView::set_subject(const Subject& subject) {
  const std::int64_t tokens = feed_.n_tokens();
  feed_.set(subject.map, subject.less);
  swiped_feed_.set(subject.swiped.value_or(MapSubject{}));
  *map_ = QuantisedMap();
  *swiped_map_ = QuantisedMap();
  scene_.title = subject.title.toStdString();
  scene_.n_tokens = feed_.n_tokens();
  scene_.finest_block = feed_.levels().empty() ? 1 : feed_.levels().front().block_tokens;
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
  const QRectF map = map_layout(QRectF(rect()), scene_).map;
  viewport.width = static_cast<int>(map.width());
  viewport.height = static_cast<int>(map.height());
  const auto n = static_cast<double>(std::max<std::int64_t>(scene_.n_tokens, 1));
  const double most = n / std::max(1, std::min(viewport.width, viewport.height));
  viewport.tokens_per_pixel =
      std::clamp(viewport.tokens_per_pixel, std::min(1 / kMostPixelsPerToken, most), most);
  const auto within = [&](double first, int pixels) {
    return std::clamp(first, 0.0, std::max(0.0, n - pixels * viewport.tokens_per_pixel));
  };
  viewport.first_key = within(viewport.first_key, viewport.width);
  viewport.first_query = within(viewport.first_query, viewport.height);
}

void MapView::set_viewport(const Viewport& viewport) {
  Viewport wanted = viewport;
  scene_.viewport = wanted;  // whether token texts show changes the map's size
  limit(wanted);
  scene_.viewport = wanted;
  fitted_ = false;
  view_moved();
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
  tiles_came();
}

void MapView::tiles_came() {
  map_->place(feed_.place(scene_.viewport));
  if (scene_.swiped)
    swiped_map_->place(swiped_feed_.place(scaled(scene_.viewport, scene_.swiped_scale)));
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
  return feed_.levels().empty()
             ? 1
             : feed_.levels()[static_cast<std::size_t>(feed_.level_for(scene_.viewport))]
                   .block_tokens;
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

void MapView::zoom(double factor, QPointF about) {
  const QRectF map = layout_now().map;
  const double x = std::clamp(about.x() - map.left(), 0.0, map.width());
  const double y = std::clamp(about.y() - map.top(), 0.0, map.height());
  Viewport& viewport = scene_.viewport;
  const double key = viewport.first_key + x * viewport.tokens_per_pixel;
  const double query = viewport.first_query + y * viewport.tokens_per_pixel;
  viewport.tokens_per_pixel /= factor;
  limit(viewport);
  viewport.first_key = key - x * viewport.tokens_per_pixel;
  viewport.first_query = query - y * viewport.tokens_per_pixel;
  limit(viewport);
  const auto n = static_cast<double>(scene_.n_tokens);
  fitted_ = viewport.tokens_per_pixel * std::min(viewport.width, viewport.height) >= n * 0.9999;
  view_moved();
  emit viewport_changed();
}

void MapView::pan(double right, double down) {
  scene_.viewport.first_key += right * scene_.viewport.tokens_per_pixel;
  scene_.viewport.first_query += down * scene_.viewport.tokens_per_pixel;
  view_moved();
  emit viewport_changed();
}

void MapView::make_visible(std::int64_t query, std::int64_t key) {
  if (query < 0 || key < 0) return;
  Viewport& viewport = scene_.viewport;
  const auto within = [&](double& first, double token, int pixels) {
    const double tokens = pixels * viewport.tokens_per_pixel;
    if (token < first || token >= first + tokens) first = token - tokens / 2;
  };
  const Viewport before = viewport;
  within(viewport.first_query, static_cast<double>(query), viewport.height);
  within(viewport.first_key, static_cast<double>(key), viewport.width);
  limit(viewport);
  if (viewport != before) {
    view_moved();
    emit viewport_changed();
  }
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

void MapView::move_focus(std::int64_t down, std::int64_t right) {
  if (scene_.n_tokens == 0) return;
  const std::int64_t block = block_here();
  if (query_ < 0) {
    const auto middle = token_at(layout_now().map.center());
    const std::int64_t query = std::clamp<std::int64_t>(middle.first, 0, scene_.n_tokens - 1);
    set_focus_cell(query, std::clamp<std::int64_t>(middle.second, 0, query));
    return;
  }
  const std::int64_t last = scene_.n_tokens - 1;
  std::int64_t query = std::clamp<std::int64_t>((query_ / block + down) * block, 0, last);
  std::int64_t key = std::clamp<std::int64_t>((key_ / block + right) * block, 0, last);
  if (key > query) {
    if (down != 0)
      key = query;  // along the diagonal
    else
      return;
  }
  set_focus_cell(query, key);
}

bool MapView::act(Act act) {
  const QPointF middle = layout_now().map.center();
  switch (act) {
    case Act::left:
    case Act::right:
      move_focus(0, act == Act::left ? -1 : 1);
      return true;
    case Act::up:
    case Act::down:
      move_focus(act == Act::up ? -1 : 1, 0);
      return true;
    case Act::zoom_in:
    case Act::zoom_out: {
      const bool focused = query_ >= 0;
      const QRectF map = layout_now().map;
      const QPointF focus(map.left() + (double(key_) - scene_.viewport.first_key) /
                                           scene_.viewport.tokens_per_pixel,
                          map.top() + (double(query_) - scene_.viewport.first_query) /
                                          scene_.viewport.tokens_per_pixel);
      zoom(act == Act::zoom_in ? kZoomStep : 1 / kZoomStep,
           focused && map.contains(focus) ? focus : middle);
      return true;
    }
    case Act::pan_left:
    case Act::pan_right:
      pan(act == Act::pan_left ? -kPanPixels : kPanPixels, 0);
      return true;
    case Act::pan_up:
    case Act::pan_down:
      pan(0, act == Act::pan_up ? -kPanPixels : kPanPixels);
      return true;
    case Act::centre: {
      Viewport wanted = scene_.viewport;
      if (query_ < 0) return this->act(Act::fit);
      wanted.first_query = double(query_) - wanted.height * wanted.tokens_per_pixel / 2;
      wanted.first_key = double(key_) - wanted.width * wanted.tokens_per_pixel / 2;
      limit(wanted);
      if (wanted == scene_.viewport) return this->act(Act::fit);  // F again
      set_viewport(wanted);
      emit viewport_changed();
      return true;
    }
    case Act::fit:
      if (scene_.region) {
        Viewport wanted = scene_.viewport;
        wanted.tokens_per_pixel = 1.1 * std::max(double(scene_.region->queries) / wanted.height,
                                                 double(scene_.region->keys) / wanted.width);
        limit(wanted);
        wanted.first_query = double(scene_.region->first_query) +
                             double(scene_.region->queries) / 2 -
                             wanted.height * wanted.tokens_per_pixel / 2;
        wanted.first_key = double(scene_.region->first_key) + double(scene_.region->keys) / 2 -
                           wanted.width * wanted.tokens_per_pixel / 2;
        limit(wanted);
        if (wanted != scene_.viewport) {
          set_viewport(wanted);
          emit viewport_changed();
          return true;
        }
      }
      show_all();
      return true;
    case Act::rectangle:
      if (scene_.region) {
        set_region(std::nullopt);
      } else if (query_ >= 0) {
        const std::int64_t reach = 8 * block_here();
        const std::int64_t first_query = std::max<std::int64_t>(0, query_ - reach);
        const std::int64_t first_key = std::max<std::int64_t>(0, key_ - reach);
        set_region(TokenRectangle{first_query, first_key,
                                  std::min(query_ + reach, scene_.n_tokens) - first_query,
                                  std::min(key_ + reach, scene_.n_tokens) - first_key});
      } else {
        rectangle_next_ = true;
        setCursor(Qt::CrossCursor);
      }
      return true;
    case Act::escape:
      if (!added_.empty()) {
        added_.clear();
        repaint_all();
      } else if (scene_.region || rectangle_next_) {
        rectangle_next_ = false;
        unsetCursor();
        set_region(std::nullopt);
      } else if (query_ >= 0) {
        set_focus_cell(-1, -1);
      } else {
        return false;
      }
      return true;
    default:
      return false;
  }
}

void MapView::set_region(const std::optional<TokenRectangle>& region) {
  if (region == scene_.region) return;
  scene_.region = region;
  repaint_all();
  emit region_changed();
}

std::optional<RegionStatistics> MapView::region_statistics_here() const {
  if (!scene_.region || feed_.is_difference()) return std::nullopt;
  const std::int64_t block = block_here();
  const std::int64_t side = (scene_.n_tokens + block - 1) / block;
  const auto cells_of_span = [&](std::int64_t first, std::int64_t count) {
    const std::int64_t begin = std::clamp<std::int64_t>(first / block, 0, side);
    return std::pair(begin,
                     std::clamp<std::int64_t>((first + count + block - 1) / block, begin, side));
  };
  const auto rows = cells_of_span(scene_.region->first_query, scene_.region->queries);
  const auto columns = cells_of_span(scene_.region->first_key, scene_.region->keys);
  Region region;
  region.block_tokens = block;
  region.n_tokens = scene_.n_tokens;
  region.means.first_row = rows.first;
  region.means.rows = rows.second - rows.first;
  region.means.first_column = columns.first;
  region.means.columns = columns.second - columns.first;
  std::vector<float> values(static_cast<std::size_t>(region.means.rows * region.means.columns),
                            kNoNumber);
  std::size_t at = 0;
  for (std::int64_t row = rows.first; row < rows.second; ++row)
    for (std::int64_t column = columns.first; column < columns.second; ++column, ++at)
      if (const auto* placed = map_->exact_tile(row, column))
        values[at] = placed->tile->values[static_cast<std::size_t>(
            (row % kTileSide) * placed->tile->columns + column % kTileSide)];
  region.means.values = values;
  return region_statistics(region);
}

QString MapView::region_text() const {
  const auto found = region_statistics_here();
  if (!found) return {};
  const TokenRectangle& r = *scene_.region;
  QString text = tr("queries %1 to %2, keys %3 to %4 (whole blocks of %5): sum %6, mean %7, "
                    "greatest %8, entropy %9 bits")
                     .arg(r.first_query)
                     .arg(r.first_query + r.queries - 1)
                     .arg(r.first_key)
                     .arg(r.first_key + r.keys - 1)
                     .arg(block_here())
                     .arg(share_text(found->sum), share_text(found->mean),
                          share_text(found->maximum), QString::number(found->entropy, 'f', 2));
  text += tr(", %1 % of these rows' attention")
              .arg(QString::number(100 * found->share_of_rows, 'f', 1));
  if (found->missing > 0) text += tr(", %1 cells not read").arg(found->missing);
  return text;
}

QString MapView::region_csv() const {
  const auto found = region_statistics_here();
  if (!found) return {};
  const TokenRectangle& r = *scene_.region;
  return QString(
             "# %1\nfirst_query,queries,first_key,keys,block_tokens,pairs,sum,mean,maximum,"
             "entropy_bits,share_of_rows,missing_cells\n%2,%3,%4,%5,%6,%7,%8,%9,")
             .arg(QString::fromStdString(scene_.title))
             .arg(r.first_query)
             .arg(r.queries)
             .arg(r.first_key)
             .arg(r.keys)
             .arg(block_here())
             .arg(found->pairs)
             .arg(QString::number(found->sum, 'g', 9), QString::number(found->mean, 'g', 9)) +
         QString("%1,%2,%3,%4\n")
             .arg(QString::number(found->maximum, 'g', 9), QString::number(found->entropy, 'g', 9),
                  QString::number(found->share_of_rows, 'g', 9))
             .arg(found->missing);
}

QString MapView::cell_text(std::int64_t query, std::int64_t key) const {
  if (query < 0 || key < 0 || query >= scene_.n_tokens || key > query) return {};
  const auto value = map_->value_at(query, key);
  const auto token = [&](std::int64_t place) {
    const QString text = QString::fromStdString(token_text(scene_.tokens, place));
    return text.isEmpty() ? QString::number(place) : QString("%1 %2").arg(place).arg(text);
  };
  QString out = tr("q %1 · k %2").arg(token(query), token(key));
  if (!value) return out + tr(" · not read yet");
  if (std::isnan(value->value)) return out + tr(" · missing");
  out += QString(" · ") + share_text(static_cast<double>(value->value));
  if (value->block > 1)
    out += (scene_.reduction == Reduction::mean ? tr(" (mean of %1 × %1 tokens)")
                                                : tr(" (greatest of %1 × %1 tokens)"))
               .arg(value->block);
  out += tr(" · rank %1 of the row's %2 blocks in sight").arg(value->rank).arg(value->stored);
  return out;
}

QString MapView::focus_text() const {
  if (!feed_.problem().isEmpty()) return feed_.problem();
  const bool hovering = hover_query_ >= 0;
  QString text = hovering ? cell_text(hover_query_, hover_key_) : cell_text(query_, key_);
  if (!added_.empty()) {
    double sum = 0;
    for (const auto& [query, key] : added_) {
      const auto value = map_->value_at(query, key);
      if (value && !std::isnan(value->value))
        sum += static_cast<double>(value->value) *
               static_cast<double>(std::min(value->block, scene_.n_tokens - value->first_key));
    }
    text += tr("   |   %1 chosen: sum %2 of a row").arg(added_.size()).arg(share_text(sum));
  }
  return text;
}

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

Table MapView::table() const {
  Table table;
  table.columns = {{tr("query").toStdString(), "token"},  {tr("key").toStdString(), "token"},
                   {tr("block").toStdString(), "tokens"}, {tr("attention").toStdString(), "share"},
                   {tr("query text").toStdString()},      {tr("key text").toStdString()}};
  constexpr std::size_t kMostRows = 200;
  struct Row {
    std::int64_t query, key, block;
    float value;
  };
  std::vector<Row> rows;
  for (const PlacedTile& placed : map_->tiles()) {
    if (!placed.tile || placed.key != placed.slot) continue;
    const Cells cells = cells_of(*placed.tile, placed.key);
    for (std::int64_t r = 0; r < cells.rows; ++r) {
      const std::int64_t query = (cells.first_row + r) * placed.block;
      if (query_ >= 0 && (query_ < query || query_ >= query + placed.block)) continue;
      for (std::int64_t c = 0; c < cells.columns && !cells.is_masked(r, c); ++c)
        if (!std::isnan(cells.at(r, c)))
          rows.push_back(
              {query, (cells.first_column + c) * placed.block, placed.block, cells.at(r, c)});
    }
  }
  const auto count = std::min(rows.size(), kMostRows);
  std::partial_sort(rows.begin(), rows.begin() + static_cast<std::ptrdiff_t>(count), rows.end(),
                    [](const Row& a, const Row& b) { return a.value > b.value; });
  for (std::size_t i = 0; i < count; ++i)
    table.rows.push_back({static_cast<double>(rows[i].query), static_cast<double>(rows[i].key),
                          static_cast<double>(rows[i].block), static_cast<double>(rows[i].value),
                          token_text(scene_.tokens, rows[i].query),
                          token_text(scene_.tokens, rows[i].key)});
  return table;
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
  paint_hover(painter);
  if (hasFocus()) {
    painter.setPen(QPen(theme_.accent, 2));
    painter.setBrush(Qt::NoBrush);
    painter.drawRect(layout_now().map.adjusted(-1, -1, 1, 1));
  }
}

void MapView::paint_hover(QPainter& painter) const {
  if (hover_query_ < 0) return;
  const auto cell = cell_at(hover_query_, hover_key_);
  if (!cell) return;
  const QRectF map = layout_now().map;
  const double per_pixel = scene_.viewport.tokens_per_pixel;
  const double x = map.left() + (double(hover_key_) + 0.5 - scene_.viewport.first_key) / per_pixel;
  const double y =
      map.top() + (double(hover_query_) + 0.5 - scene_.viewport.first_query) / per_pixel;
  painter.save();
  painter.setClipRect(map);
  painter.setPen(QPen(QColor(255, 255, 255, 130), 1));
  painter.drawLine(QPointF(map.left(), y), QPointF(x - 4, y));
  painter.drawLine(QPointF(x, y + 4), QPointF(x, map.bottom()));
  painter.setPen(QPen(QColor(0, 0, 0, 110), 1));
  painter.drawLine(QPointF(map.left(), y + 1), QPointF(x - 4, y + 1));
  painter.drawLine(QPointF(x + 1, y + 4), QPointF(x + 1, map.bottom()));
  painter.setClipping(false);
  QString text = cell_text(hover_query_, hover_key_);
  text.replace(" · ", "\n");
  const QFontMetricsF metrics(painter.font());
  QRectF box =
      metrics.boundingRect(QRectF(0, 0, 400, 200), Qt::AlignLeft, text).adjusted(-8, -6, 8, 6);
  box.moveTopLeft({x + 14, y - box.height() - 12});
  if (box.right() > width()) box.moveRight(x - 14);
  if (box.top() < 0) box.moveTop(y + 14);
  painter.setPen(theme_.grid);
  painter.setBrush(theme_.panel);
  painter.drawRoundedRect(box, 4, 4);
  painter.setPen(theme_.text);
  painter.drawText(box.adjusted(8, 6, -8, -6), Qt::AlignLeft | Qt::AlignTop, text);
  painter.restore();
}

void MapView::resizeEvent(QResizeEvent* /*event*/) {
  if (fitted_)
    show_all();
  else
    view_moved();
}

void MapView::wheelEvent(QWheelEvent* event) {
  const double steps = event->angleDelta().y() / 120.0;
  if (steps == 0 || !scene_.map) {
    event->ignore();
    return;
  }
  zoom(std::pow(kZoomStep, steps), event->position());
  event->accept();
}

void MapView::mousePressEvent(QMouseEvent* event) {
  if (!scene_.map || event->button() == Qt::RightButton) {
    event->ignore();
    return;
  }
  pressed_ = last_ = event->position();
  moved_ = false;
  const MapLayout layout = layout_now();
  const QRectF legend = layout.legend_bar.united(layout.legend_histogram).adjusted(-4, -8, 8, 8);
  if (legend.contains(pressed_) && map_->scale().kind() != ScaleKind::rank &&
      !settings_.difference && !map_->sample().empty()) {
    const Scale scale = legend_scale(*map_);
    const double low = legend_place(layout.legend_bar, scale, map_->scale().range().low);
    const double high = legend_place(layout.legend_bar, scale, map_->scale().range().high);
    drag_ = std::abs(pressed_.y() - low) < std::abs(pressed_.y() - high) ? Drag::low : Drag::high;
    return;
  }
  if (!layout.map.contains(pressed_)) return;
  const double swipe_x = layout.map.left() + scene_.swipe * layout.map.width();
  if (scene_.swiped && std::abs(pressed_.x() - swipe_x) <= kHandleReach)
    drag_ = Drag::swipe;
  else if ((event->modifiers() & Qt::ControlModifier) != 0 || rectangle_next_)
    drag_ = Drag::region;
  else
    drag_ = Drag::pan;
}

void MapView::drag_range(double y) {
  const Scale legend = legend_scale(*map_);
  const double value = legend_value(layout_now().legend_bar, legend, y);
  Range range = map_->scale().range();
  (drag_ == Drag::low ? range.low : range.high) = value;
  if (range.low >= range.high) return;  // one handle does not pass the other
  settings_.range = range;
  rescale();
  emit range_changed();
}

void MapView::mouseMoveEvent(QMouseEvent* event) {
  const QPointF position = event->position();
  if (drag_ != Drag::none && (position - pressed_).manhattanLength() > kClickReach) moved_ = true;
  const MapLayout layout = layout_now();
  switch (drag_) {
    case Drag::low:
    case Drag::high:
      if (moved_) drag_range(position.y());
      return;
    case Drag::swipe:
      scene_.swipe = std::clamp((position.x() - layout.map.left()) / layout.map.width(), 0.0, 1.0);
      repaint_all();
      return;
    case Drag::pan:
      if (moved_) {
        setCursor(Qt::ClosedHandCursor);
        pan(last_.x() - position.x(), last_.y() - position.y());
        last_ = position;
      }
      return;
    case Drag::region: {
      const auto a = token_at(pressed_), b = token_at(position);
      const auto clipped = [&](std::int64_t token) {
        return std::clamp<std::int64_t>(token, 0, scene_.n_tokens - 1);
      };
      const auto queries = std::minmax({clipped(a.first), clipped(b.first)});
      const auto keys = std::minmax({clipped(a.second), clipped(b.second)});
      const std::int64_t first_query = queries.first, first_key = keys.first;
      set_region(TokenRectangle{first_query, first_key, queries.second - first_query + 1,
                                keys.second - first_key + 1});
      return;
    }
    case Drag::none:
      break;
  }
  std::int64_t query = -1, key = -1;
  if (layout.map.contains(position)) {
    const auto token = token_at(position);
    if (cell_at(token.first, token.second) && token.first < scene_.n_tokens)
      std::tie(query, key) = token;
  }
  if (query != hover_query_ || key != hover_key_) {
    set_hover(query, key);
    emit hovered(query, key);
  }
}

void MapView::mouseReleaseEvent(QMouseEvent* event) {
  const Drag drag = std::exchange(drag_, Drag::none);
  unsetCursor();
  if (drag == Drag::region) {
    rectangle_next_ = false;
    if (!moved_) set_region(std::nullopt);
    return;
  }
  if (drag != Drag::pan || moved_) return;
  const auto [query, key] = token_at(event->position());
  if ((event->modifiers() & Qt::ShiftModifier) != 0)
    toggle_added(query, key);
  else
    set_focus_cell(query, key);
}

void MapView::mouseDoubleClickEvent(QMouseEvent* event) {
  const MapLayout layout = layout_now();
  if (layout.legend.contains(event->position()) && !locked_) {
    settings_.range.reset();  // follows what is in sight again
    rescale();
    emit range_changed();
  } else if (layout.map.contains(event->position())) {
    zoom(kZoomStep * kZoomStep, event->position());
  }
}

void MapView::leaveEvent(QEvent* /*event*/) {
  set_hover(-1, -1);
  emit hovered(-1, -1);
}

void MapView::focusInEvent(QFocusEvent* /*event*/) { update(); }
void MapView::focusOutEvent(QFocusEvent* /*event*/) { update(); }

}  // namespace kvatlas::viewer
