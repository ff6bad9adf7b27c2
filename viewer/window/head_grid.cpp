// SPDX-License-Identifier: Apache-2.0
#include "viewer/window/head_grid.hpp"

#include <QAccessible>
#include <QHelpEvent>
#include <QMouseEvent>
#include <QPainter>
#include <QScrollBar>
#include <QToolTip>
#include <algorithm>
#include <cmath>

#include "kernels/base/error.hpp"
#include "kernels/base/str.hpp"
#include "viewer/draw/grid_picture.hpp"
#include "viewer/maps/tile_cache.hpp"

namespace kvatlas::viewer {

namespace {

constexpr int kGap = 6, kLabel = 16, kHeader = 40, kStrip = 158, kLegend = 30;
constexpr int kLeastSize = 32, kMostSize = 192;
constexpr std::int64_t kThumbnailSide = 64;

}  // namespace

HeadGrid::HeadGrid(QWidget* parent)
    : QAbstractScrollArea(parent), theme_(make_theme(false, font())) {
  setFocusPolicy(Qt::StrongFocus);
  setAccessibleName(tr("All heads"));
  setFrameShape(QFrame::NoFrame);
  viewport()->setMouseTracking(true);
}

void HeadGrid::set_maps(OpenedProfile* profile, std::size_t sample, Reduction reduction) {
  if (profile_ == profile && sample_ == sample && reduction_ == reduction && level_ >= 0) return;
  if (profile_ != profile) {
    if (profile_) disconnect(profile_, nullptr, this, nullptr);
    order_.clear();
    if (profile) connect(profile, &OpenedProfile::tile_arrived, this, &HeadGrid::tile_came);
  }
  profile_ = profile;
  sample_ = sample;
  reduction_ = reduction;
  thumbnails_.clear();
  failures_.clear();
  failure_.clear();
  range_.reset();
  level_ = -1;
  if (profile_) {
    try {
      const auto levels = profile_->loader().levels(sample);
      level_ = static_cast<int>(levels.size()) - 1;
      for (int level = 0; level < static_cast<int>(levels.size()); ++level)
        if (levels[static_cast<std::size_t>(level)].side <= kThumbnailSide) {
          level_ = level;
          break;
        }
    } catch (const Error& error) {
      failure_ = QString::fromUtf8(error.what());
    }
  }
  lay_out();
}

void HeadGrid::set_order(std::vector<Place> order) {
  order_ = std::move(order);
  lay_out();
  const auto [row, column] = cell_of(layer_, head_);
  verticalScrollBar()->setValue(row * cell().height() - viewport()->height() / 3);
}

void HeadGrid::set_notes(std::vector<LayerNote> notes) {
  notes_ = std::move(notes);
  viewport()->update();
}

void HeadGrid::set_scale(ScaleKind kind, bool each_its_own) {
  if (kind == kind_ && each_its_own == each_its_own_) return;
  kind_ = kind;
  each_its_own_ = each_its_own;
  range_.reset();
  thumbnails_.clear();
  find_range();
  viewport()->update();
}

void HeadGrid::set_theme(const Theme& theme) {
  theme_ = theme;
  thumbnails_.clear();
  viewport()->update();
}

void HeadGrid::set_thumbnail_size(int pixels) {
  size_ = std::clamp(pixels, kLeastSize, kMostSize);
  thumbnails_.clear();
  lay_out();
}

int HeadGrid::columns() const {
  if (!profile_) return 0;
  if (order_.empty()) return static_cast<int>(profile_->header().n_heads);
  return std::max(1, (viewport()->width() - kGap) / cell().width());
}

int HeadGrid::rows() const {
  if (!profile_) return 0;
  if (order_.empty()) return static_cast<int>(profile_->header().n_layers);
  const int per_row = columns();
  return (static_cast<int>(order_.size()) + per_row - 1) / per_row;
}

QSize HeadGrid::cell() const {
  // In an order of their own thumbnails carry their names.
  const int label = order_.empty() ? 0 : 2 * kLabel;
  return {std::max(size_, order_.empty() ? 0 : 64) + kGap, size_ + label + kGap};
}

std::optional<HeadGrid::Place> HeadGrid::place_at(int row, int column) const {
  if (row < 0 || column < 0 || row >= rows() || column >= columns()) return std::nullopt;
  if (order_.empty()) return Place{row, column, 0};
  const auto at = static_cast<std::size_t>(row * columns() + column);
  if (at >= order_.size()) return std::nullopt;
  return order_[at];
}

std::pair<int, int> HeadGrid::cell_of(std::int64_t layer, std::int64_t head) const {
  if (order_.empty()) return {static_cast<int>(layer), static_cast<int>(head)};
  const auto found = std::find_if(order_.begin(), order_.end(), [&](const Place& place) {
    return place.layer == layer && place.head == head;
  });
  const int at = found == order_.end() ? 0 : static_cast<int>(found - order_.begin());
  return {at / columns(), at % columns()};
}

QRect HeadGrid::cell_rectangle(int row, int column) const {
  const int left = order_.empty() ? kStrip : kGap;
  const int top = order_.empty() ? kHeader : kGap;
  return {left + column * cell().width() - horizontalScrollBar()->value(),
          top + row * cell().height() - verticalScrollBar()->value(), size_, size_};
}

std::optional<std::pair<int, int>> HeadGrid::cell_under(QPoint position) const {
  if (position.y() >= viewport()->height() - kLegend) return std::nullopt;
  const QRect first = cell_rectangle(0, 0);
  if (order_.empty() && (position.x() < kStrip || position.y() < kHeader)) return std::nullopt;
  const int column = (position.x() - first.left()) / cell().width();
  const int row = (position.y() - first.top()) / cell().height();
  if (position.x() < first.left() || position.y() < first.top() || !place_at(row, column))
    return std::nullopt;
  return std::pair(row, column);
}

void HeadGrid::lay_out() {
  const int left = order_.empty() ? kStrip : kGap, top = order_.empty() ? kHeader : kGap;
  const int width = left + columns() * cell().width();
  const int height = top + rows() * cell().height() + kLegend;
  horizontalScrollBar()->setRange(0, std::max(0, width - viewport()->width()));
  horizontalScrollBar()->setPageStep(viewport()->width());
  horizontalScrollBar()->setSingleStep(cell().width());
  verticalScrollBar()->setRange(0, std::max(0, height - viewport()->height()));
  verticalScrollBar()->setPageStep(viewport()->height());
  verticalScrollBar()->setSingleStep(cell().height());
  want();
  viewport()->update();
}

TileKey HeadGrid::key_of(std::int64_t layer, std::int64_t head) const {
  return {{sample_, layer, head, reduction_}, level_, 0, 0};
}

std::vector<std::pair<std::int64_t, std::int64_t>> HeadGrid::in_sight() const {
  std::vector<std::pair<std::int64_t, std::int64_t>> found;
  for (int row = 0; row < rows(); ++row)
    for (int column = 0; column < columns(); ++column) {
      const QRect box = cell_rectangle(row, column);
      const auto place = place_at(row, column);
      if (place && box.bottom() >= 0 && box.top() < viewport()->height() && box.right() >= 0 &&
          box.left() < viewport()->width())
        found.emplace_back(place->layer, place->head);
    }
  return found;
}

void HeadGrid::want() {
  if (!profile_ || level_ < 0 || !isVisible()) return;
  const auto seen = in_sight();
  if (seen.empty()) return;
  std::vector<TileRequest> wanted;
  const auto add = [&](std::int64_t layer, std::int64_t head, Priority priority) {
    const TileKey key = key_of(layer, head);
    if (!profile_->has_tile(key) && !failures_.contains(key)) wanted.push_back({key, priority});
  };
  for (const auto& [layer, head] : seen) add(layer, head, Priority::visible);
  // A ring of one thumbnail around those in sight.
  const auto first = cell_of(seen.front().first, seen.front().second);
  const auto last = cell_of(seen.back().first, seen.back().second);
  for (int row = first.first - 1; row <= last.first + 1; ++row)
    for (int column = std::min(first.second, last.second) - 1;
         column <= std::max(first.second, last.second) + 1; ++column)
      if (const auto place = place_at(row, column))
        add(place->layer, place->head, Priority::neighbour);
  profile_->loader().request(std::move(wanted));
}

void HeadGrid::tile_came(const TileKey& key, const QString& failure) {
  if (key.level != level_ || key.map.sample != sample_ || key.map.reduction != reduction_) return;
  if (!failure.isEmpty()) {
    failures_[key] = failure;
    failure_ = failure;
  }
  find_range();
  viewport()->update();
}

bool HeadGrid::is_loaded() const {
  if (!profile_ || level_ < 0) return false;
  for (const auto& [layer, head] : in_sight()) {
    const TileKey key = key_of(layer, head);
    if (!profile_->cache().contains(key) && !failures_.contains(key)) return false;
  }
  return true;
}

/// One range for all, of the thumbnails that were first in sight: colours stay as one scrolls.
bool HeadGrid::find_range() {
  if (each_its_own_ || range_ || !is_loaded()) return false;
  std::vector<Cells> cells;
  std::vector<std::shared_ptr<const Tile>> tiles;
  for (const auto& [layer, head] : in_sight())
    if (auto tile = profile_->cache().find(key_of(layer, head))) {
      cells.push_back(cells_of(*tile, key_of(layer, head)));
      tiles.push_back(std::move(tile));
    }
  const auto sample = sample_visible(cells, 16384);
  if (sample.empty()) return false;
  range_ = robust_range(sample, kind_);
  thumbnails_.clear();
  return true;
}

const QPixmap* HeadGrid::thumbnail(std::int64_t layer, std::int64_t head, double ratio) {
  if (ratio != ratio_) {
    thumbnails_.clear();
    ratio_ = ratio;
  }
  const TileKey key = key_of(layer, head);
  const auto found = thumbnails_.find(key);
  if (found != thumbnails_.end()) return &found->second;
  const auto tile = profile_->cache().find(key);
  if (!tile) return nullptr;
  Range range{1e-6, 1};
  if (range_ && !each_its_own_) {
    range = *range_;
  } else {
    const std::vector<Cells> cells = {cells_of(*tile, key)};
    range = robust_range(sample_visible(cells, 4096), kind_);
  }
  QPixmap pixmap = QPixmap::fromImage(
      thumbnail_image(*tile, Scale(kind_, range), static_cast<int>(size_ * ratio), theme_));
  pixmap.setDevicePixelRatio(ratio);
  constexpr std::size_t kMostThumbnails = 4096;
  if (thumbnails_.size() > kMostThumbnails) thumbnails_.clear();
  return &thumbnails_.emplace(key, std::move(pixmap)).first->second;
}

void HeadGrid::paintEvent(QPaintEvent* /*event*/) {
  QPainter painter(viewport());
  painter.fillRect(viewport()->rect(), theme_.background);
  if (!profile_ || level_ < 0) {
    painter.setPen(theme_.faint_text);
    painter.drawText(viewport()->rect().adjusted(40, 40, -40, -40),
                     Qt::AlignCenter | Qt::TextWordWrap, failure_);
    return;
  }
  const double ratio = painter.deviceTransform().m11();
  QFont small = theme_.font;
  small.setPointSizeF(small.pointSizeF() * 0.85);
  painter.setFont(small);
  for (const auto& [layer, head] : in_sight()) {
    const auto [row, column] = cell_of(layer, head);
    const QRect box = cell_rectangle(row, column);
    if (const QPixmap* pixmap = thumbnail(layer, head, ratio)) {
      painter.drawPixmap(box.topLeft(), *pixmap);
    } else {
      const bool failed = failures_.contains(key_of(layer, head));
      painter.fillRect(box, failed ? QBrush(theme_.missing, Qt::BDiagPattern) : theme_.panel);
    }
    painter.setPen(theme_.grid);
    painter.drawRect(box.adjusted(-1, -1, 0, 0));
    if (!order_.empty()) {
      const auto place = place_at(row, column);
      painter.setPen(theme_.text);
      painter.drawText(QRect(box.left(), box.bottom() + 1, cell().width(), kLabel),
                       Qt::AlignLeft | Qt::AlignVCenter, QString("L%1.H%2").arg(layer).arg(head));
      painter.setPen(theme_.faint_text);
      painter.drawText(QRect(box.left(), box.bottom() + kLabel - 1, cell().width(), kLabel),
                       Qt::AlignLeft | Qt::AlignVCenter, QString::number(place->number, 'g', 3));
    }
    if (layer == layer_ && head == head_) {
      painter.setPen(QPen(theme_.text, 3));
      painter.drawRect(box.adjusted(-3, -3, 2, 2));
      painter.setPen(QPen(theme_.accent, hasFocus() ? 3 : 1));
      painter.drawRect(box.adjusted(-3, -3, 2, 2));
    }
  }
  if (order_.empty()) {
    paint_strip(painter);
    paint_header(painter);
  }
  paint_legend(painter);
}

void HeadGrid::paint_header(QPainter& painter) {
  painter.fillRect(0, 0, viewport()->width(), kHeader - 2, theme_.background);
  const auto& header = profile_->header();
  const std::int64_t group = std::max<std::int64_t>(1, header.n_heads / header.n_kv_heads);
  painter.setClipRect(kStrip - kGap, 0, viewport()->width(), kHeader);
  for (int column = 0; column < columns(); ++column) {
    const QRect box = cell_rectangle(0, column);
    painter.setPen(column == head_ ? theme_.accent : theme_.text);
    painter.drawText(QRect(box.left(), kHeader - 18, size_, 16), Qt::AlignCenter,
                     QString("H%1").arg(column));
    if (column % group == 0) {
      const int right = box.left() + static_cast<int>(group) * cell().width() - kGap;
      painter.setPen(theme_.faint_text);
      painter.drawText(QRect(box.left(), 0, right - box.left(), 15), Qt::AlignCenter,
                       tr("KV %1").arg(column / group));
      painter.drawLine(box.left(), 20, box.left(), 16);
      painter.drawLine(box.left(), 16, right - 1, 16);
      painter.drawLine(right - 1, 16, right - 1, 20);
    }
  }
  painter.setClipping(false);
  painter.setPen(theme_.faint_text);
  const QStringList titles = {tr("layer"), tr("lazy"), tr("budget"), tr("blocks")};
  const int lefts[] = {2, 36, 64, 110};
  for (int i = 0; i < titles.size(); ++i)
    painter.drawText(QRect(lefts[i], kHeader - 18, 46, 16), Qt::AlignLeft | Qt::AlignVCenter,
                     titles[i]);
}

void HeadGrid::paint_strip(QPainter& painter) {
  painter.fillRect(0, 0, kStrip - kGap, viewport()->height(), theme_.background);
  for (int row = 0; row < rows(); ++row) {
    const QRect box = cell_rectangle(row, 0);
    if (box.bottom() < 0 || box.top() > viewport()->height()) continue;
    const auto text = [&](int left, const QString& shown, const QColor& colour) {
      painter.setPen(colour);
      painter.drawText(QRect(left, box.top(), 40, box.height()), Qt::AlignLeft | Qt::AlignVCenter,
                       shown);
    };
    text(2, QString("L%1").arg(row), row == layer_ ? theme_.accent : theme_.text);
    if (static_cast<std::size_t>(row) >= notes_.size()) continue;
    const LayerNote& note = notes_[static_cast<std::size_t>(row)];
    if (note.lazy) {
      // Filled and hatched: lazy; an empty frame: not.
      const QRect mark(38, box.center().y() - 7, 14, 14);
      painter.setPen(theme_.text);
      painter.setBrush(*note.lazy ? QBrush(theme_.accent, Qt::BDiagPattern) : Qt::NoBrush);
      painter.drawRect(mark);
      painter.setBrush(Qt::NoBrush);
    }
    if (note.budget >= 0) text(64, QString::number(note.budget), theme_.text);
    if (!note.blocks.empty()) text(110, QString::fromStdString(note.blocks), theme_.text);
  }
}

void HeadGrid::paint_legend(QPainter& painter) {
  const int top = viewport()->height() - kLegend;
  painter.fillRect(0, top, viewport()->width(), kLegend, theme_.panel);
  painter.setPen(theme_.text);
  const char* names[] = {"linear", "log", "square root", "rank"};
  const QString what = tr("attention, %1 of blocks, %2")
                           .arg(reduction_ == Reduction::mean ? tr("mean") : tr("greatest"))
                           .arg(names[static_cast<int>(kind_)]);
  if (each_its_own_ || !range_) {
    painter.drawText(QRect(8, top, viewport()->width() - 16, kLegend),
                     Qt::AlignLeft | Qt::AlignVCenter,
                     each_its_own_ ? what + tr("; each head with a range of its own") : what);
    return;
  }
  painter.drawText(QRect(8, top, 220, kLegend), Qt::AlignLeft | Qt::AlignVCenter, what);
  const QRect bar(230, top + 4, std::min(220, viewport()->width() - 330), 9);
  if (bar.width() < 40) return;
  for (int x = 0; x < bar.width(); ++x)
    painter.fillRect(bar.left() + x, bar.top(), 1, bar.height(),
                     to_qcolor(colour_at(theme_.colours, (x + 0.5) / bar.width())));
  for (const Tick& tick : ticks(Scale(kind_, *range_), 5))
    painter.drawText(QRect(bar.left() + static_cast<int>(tick.position * bar.width()) - 30,
                           bar.bottom() + 1, 60, 15),
                     Qt::AlignCenter, QString::fromStdString(tick.label));
}

QString HeadGrid::about(const Place& place) const {
  QString text = QString("L%1.H%2").arg(place.layer).arg(place.head);
  if (static_cast<std::size_t>(place.layer) < notes_.size()) {
    const LayerNote& note = notes_[static_cast<std::size_t>(place.layer)];
    if (note.lazy) text += *note.lazy ? tr("\nlazy at the present threshold") : tr("\nnot lazy");
    if (note.budget >= 0) text += tr("\nDynamicKV budget: %1 tokens").arg(note.budget);
    if (!note.blocks.empty())
      text += tr("\nheads that begin a PoD block: %1").arg(QString::fromStdString(note.blocks));
  }
  const auto failed = failures_.find(key_of(place.layer, place.head));
  if (failed != failures_.end()) text += "\n" + failed->second;
  return text;
}

bool HeadGrid::viewportEvent(QEvent* event) {
  if (event->type() == QEvent::ToolTip) {
    const auto* help = static_cast<QHelpEvent*>(event);
    if (const auto under = cell_under(help->pos()))
      QToolTip::showText(help->globalPos(), about(*place_at(under->first, under->second)),
                         viewport());
    else
      QToolTip::hideText();
    return true;
  }
  return QAbstractScrollArea::viewportEvent(event);
}

PicturePtr HeadGrid::picture() const {
  if (!profile_ || level_ < 0) return nullptr;
  const auto& header = profile_->header();
  GridScene scene;
  scene.title = str("Attention maps of ", header.model_name, ", ", profile_->samples()[sample_].id);
  scene.layers = header.n_layers;
  scene.heads = header.n_heads;
  scene.kv_heads = header.n_kv_heads;
  scene.kind = kind_;
  scene.reduction = reduction_;
  for (std::int64_t layer = 0; layer < header.n_layers; ++layer)
    for (std::int64_t head = 0; head < header.n_heads; ++head)
      scene.maps.push_back(profile_->cache().find(key_of(layer, head)));
  return grid_picture(std::move(scene));
}

void HeadGrid::choose(std::int64_t layer, std::int64_t head) {
  if (!profile_ || (layer == layer_ && head == head_)) return;
  layer_ = std::clamp<std::int64_t>(layer, 0, profile_->header().n_layers - 1);
  head_ = std::clamp<std::int64_t>(head, 0, profile_->header().n_heads - 1);
  const auto [row, column] = cell_of(layer_, head_);
  const QRect box = cell_rectangle(row, column);
  const int left = order_.empty() ? kStrip : 0, top = order_.empty() ? kHeader : 0;
  const int bottom = viewport()->height() - kLegend - (cell().height() - size_);
  const auto scroll = [](QScrollBar* bar, int before, int after) {
    if (before > 0) bar->setValue(bar->value() - before);
    if (after > 0) bar->setValue(bar->value() + after);
  };
  scroll(horizontalScrollBar(), left - box.left(), box.right() + kGap - viewport()->width());
  scroll(verticalScrollBar(), top - box.top(), box.bottom() + kGap - bottom);
  setAccessibleDescription(about({layer_, head_, 0}));
  QAccessibleEvent changed(this, QAccessible::DescriptionChanged);
  QAccessible::updateAccessibility(&changed);
  viewport()->update();
  emit chosen(layer_, head_);
}

bool HeadGrid::act(Act act) {
  if (!profile_ || level_ < 0) return false;
  auto [row, column] = cell_of(layer_, head_);
  switch (act) {
    case Act::left:
      --column;
      break;
    case Act::right:
      ++column;
      break;
    case Act::up:
      --row;
      break;
    case Act::down:
      ++row;
      break;
    case Act::enter:
      emit entered(layer_, head_);
      return true;
    case Act::zoom_in:
    case Act::zoom_out:
      set_thumbnail_size(act == Act::zoom_in ? size_ * 4 / 3 : size_ * 3 / 4);
      return true;
    case Act::pan_left:
    case Act::pan_right:
      horizontalScrollBar()->triggerAction(act == Act::pan_left
                                               ? QAbstractSlider::SliderSingleStepSub
                                               : QAbstractSlider::SliderSingleStepAdd);
      return true;
    case Act::pan_up:
    case Act::pan_down:
      verticalScrollBar()->triggerAction(act == Act::pan_up ? QAbstractSlider::SliderSingleStepSub
                                                            : QAbstractSlider::SliderSingleStepAdd);
      return true;
    default:
      return false;
  }
  if (const auto place = place_at(row, column)) choose(place->layer, place->head);
  return true;
}

void HeadGrid::resizeEvent(QResizeEvent* /*event*/) { lay_out(); }

void HeadGrid::scrollContentsBy(int /*dx*/, int /*dy*/) {
  want();
  viewport()->update();
}

void HeadGrid::mousePressEvent(QMouseEvent* event) {
  if (const auto under = cell_under(event->pos())) {
    const auto place = place_at(under->first, under->second);
    choose(place->layer, place->head);
  }
}

void HeadGrid::mouseDoubleClickEvent(QMouseEvent* event) {
  if (const auto under = cell_under(event->pos())) {
    const auto place = place_at(under->first, under->second);
    emit entered(place->layer, place->head);
  }
}

}  // namespace kvatlas::viewer
