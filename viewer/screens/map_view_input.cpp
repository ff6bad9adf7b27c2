// SPDX-License-Identifier: Apache-2.0
// Keys, wheel and mouse on a map.
#include <QMouseEvent>
#include <QWheelEvent>
#include <algorithm>
#include <cmath>
#include <utility>

#include "viewer/maps/viewport_moves.hpp"
#include "viewer/screens/map_view.hpp"

namespace kvatlas::viewer {

namespace {

constexpr double kZoomStep = 1.25, kPanPixels = 80;
constexpr double kHandleReach = 7, kClickReach = 4;

}  // namespace

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
  fitted_ = shows_all(viewport, scene_.n_tokens);
  view_moved();
  emit viewport_changed();
}

void MapView::pan(double right, double down) {
  scene_.viewport.first_key += right * scene_.viewport.tokens_per_pixel;
  scene_.viewport.first_query += down * scene_.viewport.tokens_per_pixel;
  view_moved();
  emit viewport_changed();
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
      if (query_ < 0) return this->act(Act::fit);
      Viewport wanted = centred(scene_.viewport, double(query_), double(key_));
      limit(wanted);
      if (wanted == scene_.viewport) return this->act(Act::fit);  // F again
      set_viewport(wanted);
      emit viewport_changed();
      return true;
    }
    case Act::fit:
      if (const Viewport before = scene_.viewport; scene_.region) {
        show_part(*scene_.region);
        if (scene_.viewport != before) return true;
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

}  // namespace kvatlas::viewer
