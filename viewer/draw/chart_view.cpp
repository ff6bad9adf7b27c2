// SPDX-License-Identifier: Apache-2.0
#include "viewer/draw/chart_view.hpp"

#include <QAccessible>
#include <QGuiApplication>
#include <QHelpEvent>
#include <QKeyEvent>
#include <QMouseEvent>
#include <QPainter>
#include <QToolTip>
#include <algorithm>
#include <cmath>
#include <utility>

#include "viewer/draw/chart_drawing_impl.hpp"

namespace kvatlas::viewer {

namespace {
constexpr int kLeastWidth = 280;  // with less, plots and the legend's names are hard to read
}

struct ChartView::State {
  ChartDrawing drawing;
  Theme theme = make_theme(false, QGuiApplication::font());
  QImage cache;  // the drawing without hover, focus and brush
  bool stale = true;
  int least_height = 0;

  Part hovered, focused;
  QPoint hover_at{-1, -1};
  QString hover_text;

  Handle dragged = Handle::none;
  bool is_dragging() const { return dragged != Handle::none; }
  bool brushing = false;
  std::optional<QPoint> brush_start;
  std::optional<std::pair<double, double>> brushed;
};

ChartView::ChartView(QWidget* parent) : QWidget(parent), state_(std::make_unique<State>()) {
  setMouseTracking(true);
  setFocusPolicy(Qt::StrongFocus);
  setAttribute(Qt::WA_OpaquePaintEvent);
  state_->drawing.set({}, state_->theme, QRectF(rect()));
  paint_anew();
}

ChartView::~ChartView() = default;

QSize ChartView::sizeHint() const { return {640, 400}; }
QSize ChartView::minimumSizeHint() const { return {kLeastWidth, state_->least_height}; }

const Chart& ChartView::chart() const { return state_->drawing.chart(); }

/// To be called whenever the chart lies otherwise than before.
void ChartView::paint_anew() {
  const auto least = state_->drawing.least_height(std::max(width(), kLeastWidth));
  if (const int height = static_cast<int>(std::ceil(least)); height != state_->least_height) {
    state_->least_height = height;
    updateGeometry();
  }
  state_->stale = true;
  update();
}

void ChartView::set_chart(Chart chart) {
  State& state = *state_;
  const auto same_series = [&](const Chart& a, const Chart& b) {
    return a.points.size() == b.points.size() && a.lines.size() == b.lines.size() &&
           a.bars.size() == b.bars.size() && a.boxes.size() == b.boxes.size() &&
           a.matrices.size() == b.matrices.size();
  };
  const bool keep = same_series(chart, this->chart());
  const bool retitled = chart.title != this->chart().title;
  state.drawing.set(std::move(chart), state.theme, QRectF(rect()));
  paint_anew();
  if (!keep ||
      (state.focused.kind != Part::Kind::none && state.drawing.area_of(state.focused).isEmpty()))
    state.focused = {};
  state.hovered = {};
  if (!mark_of(this->chart(), state.dragged)) state.dragged = Handle::none;
  if (underMouse() && state.hover_at.x() >= 0 && !state.is_dragging()) set_hover(state.hover_at);
  if (retitled) setAccessibleName(QString::fromStdString(this->chart().title));
}

void ChartView::set_theme(const Theme& theme) {
  state_->theme = theme;
  state_->drawing.set(Chart(chart()), theme, QRectF(rect()));
  paint_anew();
}

void ChartView::line_up(ChartView& one, ChartView& other) {
  const ChartFrame both =
      joined(one.state_->drawing.own_frame(), other.state_->drawing.own_frame());
  for (ChartView* view : {&one, &other}) {
    view->state_->drawing.set_frame(both);
    view->paint_anew();
  }
}

void ChartView::stand_alone() {
  state_->drawing.set_frame({});
  paint_anew();
}

void ChartView::set_brushing(bool on) { state_->brushing = on; }

QString ChartView::hover_text() const { return state_->hover_text; }

QString ChartView::focus_text() const { return state_->drawing.words(state_->focused); }

QPoint ChartView::handle_place(Handle handle) const {
  const auto& drawing = state_->drawing;
  const Mark* mark = mark_of(chart(), handle);
  if (!mark) return {};
  const double at = drawing.mark_pixel(*mark);
  if (std::isnan(at)) return {};
  const auto& layout = drawing.layout();
  if (!layout.has_plot) return QPointF(layout.legend_bar.center().x(), at).toPoint();
  return mark->vertical ? QPointF(at, layout.plot.bottom() - kGripIn).toPoint()
                        : QPointF(layout.plot.left() + kGripIn, at).toPoint();
}

QPoint ChartView::point_place(int series, int point) const {
  const int own = static_cast<int>(chart().points.size());
  const Part part = series < own ? Part{Part::Kind::point, series, point}
                                 : Part{Part::Kind::line_point, series - own, point};
  return state_->drawing.area_of(part).center().toPoint();
}

QPoint ChartView::cell_place(int matrix, int row, int column) const {
  return state_->drawing.area_of({Part::Kind::cell, 0, matrix, row, column}).center().toPoint();
}

void ChartView::resizeEvent(QResizeEvent* /*event*/) {
  state_->drawing.place(QRectF(rect()));
  paint_anew();
}

void ChartView::paintEvent(QPaintEvent* /*event*/) {
  State& state = *state_;
  const double ratio = devicePixelRatioF();
  const QSize pixels = (QSizeF(size()) * ratio).toSize();
  if (state.cache.size() != pixels) {
    // Qt blends patterns into this format much faster than into a window's.
    state.cache = QImage(pixels, QImage::Format_ARGB32_Premultiplied);
    state.stale = true;
  }
  state.cache.setDevicePixelRatio(ratio);
  if (state.stale) {
    state.cache.fill(state.theme.background);
    QPainter into(&state.cache);
    state.drawing.paint(into);
    state.stale = false;
  }
  QPainter painter(this);
  painter.setCompositionMode(QPainter::CompositionMode_Source);
  painter.drawImage(0, 0, state.cache);
  painter.setCompositionMode(QPainter::CompositionMode_SourceOver);
  painter.setRenderHint(QPainter::Antialiasing);
  const auto& layout = state.drawing.layout();
  if (state.brushed && layout.has_plot) {
    QColor shade = state.theme.accent;
    shade.setAlphaF(0.18F);
    const double left = std::max(layout.x.pixel(state.brushed->first), layout.plot.left());
    const double right = std::min(layout.x.pixel(state.brushed->second), layout.plot.right());
    painter.fillRect(QRectF(left, layout.plot.top(), right - left, layout.plot.height()), shade);
  }
  if (state.hover_at.x() >= 0 && layout.has_plot && !state.is_dragging() &&
      layout.plot.contains(state.hover_at)) {
    painter.setPen(QPen(state.theme.faint_text, 1, Qt::DotLine));
    const QPointF at =
        state.hovered.kind == Part::Kind::point || state.hovered.kind == Part::Kind::line_point
            ? state.drawing.area_of(state.hovered).center()
            : QPointF(state.hover_at);
    painter.drawLine(QPointF(at.x(), layout.plot.top()), QPointF(at.x(), layout.plot.bottom()));
    painter.drawLine(QPointF(layout.plot.left(), at.y()), QPointF(layout.plot.right(), at.y()));
  }
  const auto ring = [&](const Part& part, const QColor& colour, double width) {
    const QRectF area = state.drawing.area_of(part);
    if (area.isEmpty()) return;
    painter.setBrush(Qt::NoBrush);
    painter.setPen(QPen(state.theme.background, width + 2));
    painter.drawRect(area.adjusted(-2, -2, 2, 2));
    painter.setPen(QPen(colour, width));
    painter.drawRect(area.adjusted(-2, -2, 2, 2));
  };
  ring(state.hovered, state.theme.text, 1);
  if (!hasFocus()) return;
  ring(state.focused, state.theme.accent, 2);
  painter.setBrush(Qt::NoBrush);
  painter.setPen(QPen(state.theme.accent, 2));
  painter.drawRect(QRectF(rect()).adjusted(1, 1, -1, -1));
}

void ChartView::set_hover(const QPoint& at) {
  State& state = *state_;
  state.hover_at = at;
  const Part part = state.drawing.part_at(at);
  if (part != state.hovered &&
      (part.kind == Part::Kind::cell || state.hovered.kind == Part::Kind::cell))
    emit cell_hovered(part.kind == Part::Kind::cell ? part.index : -1, part.row, part.column);
  state.hovered = part;
  const Mark* handle = state.drawing.handle_at(at);
  QString text = state.drawing.words(state.hovered);
  if (text.isEmpty() && handle)
    text = tr("%1 %2, drag to change it")
               .arg(QString::fromStdString(handle->label), plain_number(handle->at, 4));
  if (text.isEmpty()) text = state.drawing.whole_text_at(at);
  state.hover_text = text;
  if (!handle || state.hovered.kind == Part::Kind::point)
    setCursor(state.hovered.kind == Part::Kind::none ? Qt::ArrowCursor : Qt::PointingHandCursor);
  else
    setCursor(state.drawing.layout().has_plot && handle->vertical ? Qt::SplitHCursor
                                                                  : Qt::SplitVCursor);
  update();
}

void ChartView::mousePressEvent(QMouseEvent* event) {
  State& state = *state_;
  if (event->button() != Qt::LeftButton) return;
  const QPoint at = event->position().toPoint();
  const Mark* handle = state.drawing.handle_at(at);
  // A point beneath a handle's line can still be chosen; the grip itself always drags.
  const bool on_point = state.drawing.part_at(at).kind == Part::Kind::point &&
                        (!handle || (handle_place(handle->handle) - at).manhattanLength() > 16);
  if (handle && !on_point) {
    state.dragged = handle->handle;
    QToolTip::hideText();
    return;
  }
  if (state.brushing && state.drawing.layout().plot.contains(at)) state.brush_start = at;
}

void ChartView::mouseMoveEvent(QMouseEvent* event) {
  State& state = *state_;
  const QPoint at = event->position().toPoint();
  if (const Mark* mark = mark_of(chart(), state.dragged)) {
    state.hover_at = at;
    emit handle_moved(mark->handle, state.drawing.mark_value(*mark, at), false);
    return;
  }
  if (state.brush_start && (event->buttons() & Qt::LeftButton)) {
    if ((at - *state.brush_start).manhattanLength() > 3) {
      const auto& x = state.drawing.layout().x;
      const double a = x.value(state.brush_start->x()), b = x.value(at.x());
      state.brushed = {std::clamp(std::min(a, b), x.low, x.high),
                       std::clamp(std::max(a, b), x.low, x.high)};
      update();
    }
    return;
  }
  const Part before = state.hovered;
  set_hover(at);
  if (state.hover_text.isEmpty())
    QToolTip::hideText();
  else if (before != state.hovered)
    QToolTip::showText(event->globalPosition().toPoint(), state.hover_text.toHtmlEscaped(), this);
}

void ChartView::mouseReleaseEvent(QMouseEvent* event) {
  State& state = *state_;
  if (event->button() != Qt::LeftButton) return;
  const QPoint at = event->position().toPoint();
  if (const Mark* mark = mark_of(chart(), std::exchange(state.dragged, Handle::none))) {
    emit handle_moved(mark->handle, state.drawing.mark_value(*mark, at), true);
    return;
  }
  if (state.brush_start) {
    const bool moved = (at - *state.brush_start).manhattanLength() > 3;
    state.brush_start.reset();
    if (const auto range = std::exchange(state.brushed, std::nullopt); moved && range) {
      update();
      emit range_brushed(range->first, range->second);
      return;
    }
  }
  const Part part = state.drawing.part_at(at);
  if (part.kind != Part::Kind::none) {
    state.focused = part;
    announce();
    choose_focused();
  } else if (const auto& layout = state.drawing.layout();
             layout.plot.contains(at) && (!chart().bars.empty() || !chart().boxes.empty())) {
    emit column_chosen(std::round(layout.x.value(at.x())));
  }
}

void ChartView::leaveEvent(QEvent* /*event*/) {
  if (state_->hovered.kind == Part::Kind::cell) emit cell_hovered(-1, -1, -1);
  state_->hovered = {};
  state_->hover_at = {-1, -1};
  state_->hover_text.clear();
  update();
}

bool ChartView::event(QEvent* event) {
  if (event->type() == QEvent::ToolTip) {
    if (!state_->hover_text.isEmpty())
      QToolTip::showText(static_cast<QHelpEvent*>(event)->globalPos(),
                         state_->hover_text.toHtmlEscaped(), this);
    return true;
  }
  return QWidget::event(event);
}

void ChartView::choose_focused() {
  const Part part = state_->focused;
  switch (part.kind) {
    case Part::Kind::none:
      break;
    case Part::Kind::point:
      emit point_chosen(part.series, part.index);
      break;
    case Part::Kind::line_point:
      emit point_chosen(static_cast<int>(chart().points.size()) + part.series, part.index);
      break;
    case Part::Kind::bar:
      emit column_chosen(chart().bars[part.series].bars[part.index].x);
      break;
    case Part::Kind::box:
      emit column_chosen(chart().boxes[part.index].x);
      break;
    case Part::Kind::cell:
      emit cell_chosen(part.index, part.row, part.column);
      break;
  }
}

void ChartView::announce() {
  setAccessibleDescription(focus_text());
  QAccessibleEvent changed(this, QAccessible::DescriptionChanged);
  QAccessible::updateAccessibility(&changed);
  update();
}

void ChartView::move_focus(int columns, int rows) {
  State& state = *state_;
  const auto parts = state.drawing.parts();
  if (parts.empty()) return;
  const auto found = std::find(parts.begin(), parts.end(), state.focused);
  if (found == parts.end()) {
    state.focused = parts.front();
    announce();
    return;
  }
  if (columns != 0) {  // within its series
    const auto next = found + columns;
    if (next < parts.begin() || next >= parts.end() || next->kind != found->kind ||
        next->series != found->series)
      return;
    state.focused = *next;
  } else {  // the nearest of the series before or after
    const double x = state.drawing.area_of(*found).center().x();
    auto first = found;
    const auto same = [](const Part& a, const Part& b) {
      return a.kind == b.kind && a.series == b.series;
    };
    if (rows > 0) {
      while (first != parts.end() && same(*first, *found)) ++first;
      if (first == parts.end()) return;
    } else {
      while (first != parts.begin() && same(*first, *found)) --first;
      if (same(*first, *found)) return;
    }
    const Part series = *first;
    double nearest = -1;
    for (const auto& part : parts) {
      if (!same(part, series)) continue;
      const double distance = std::abs(state.drawing.area_of(part).center().x() - x);
      if (nearest >= 0 && distance >= nearest) continue;
      nearest = distance;
      state.focused = part;
    }
  }
  announce();
}

void ChartView::move_cell(int columns, int rows) {
  Part part = state_->focused;
  const auto size_of = [this](int matrix) {
    const auto& of = chart().matrices[matrix];
    return QSize(static_cast<int>(of.column_labels.size()), static_cast<int>(of.row_labels.size()));
  };
  if (part.kind != Part::Kind::cell) {
    part = {Part::Kind::cell, 0, 0, 0, 0};
  } else {
    part.row = std::clamp(part.row + rows, 0, size_of(part.index).height() - 1);
    part.column += columns;
    // Beyond a side lies the matrix beside it.
    if (part.column < 0 && part.index > 0)
      part.column = size_of(--part.index).width() - 1;
    else if (part.column >= size_of(part.index).width() &&
             part.index + 1 < static_cast<int>(chart().matrices.size()))
      ++part.index, part.column = 0;
    part.column = std::max(0, std::min(part.column, size_of(part.index).width() - 1));
    part.row = std::min(part.row, size_of(part.index).height() - 1);
  }
  if (size_of(part.index).isEmpty()) return;
  state_->focused = part;
  announce();
  choose_focused();
}

void ChartView::keyPressEvent(QKeyEvent* event) {
  State& state = *state_;
  if (event->modifiers() & (Qt::ControlModifier | Qt::AltModifier | Qt::MetaModifier)) {
    QWidget::keyPressEvent(event);
    return;
  }
  const bool cells = !chart().matrices.empty() &&
                     (!state.drawing.layout().has_plot || state.focused.kind == Part::Kind::cell);
  const auto move = [&](int columns, int rows) {
    cells ? move_cell(columns, rows) : move_focus(columns, rows);
  };
  switch (event->key()) {
    case Qt::Key_Left:
      return move(-1, 0);
    case Qt::Key_Right:
      return move(1, 0);
    case Qt::Key_Up:
      return move(0, -1);
    case Qt::Key_Down:
      return move(0, 1);
    case Qt::Key_Return:
    case Qt::Key_Enter:
    case Qt::Key_Space:
      return choose_focused();
    case Qt::Key_Escape:
      if (state.is_dragging() || state.brush_start || state.focused.kind != Part::Kind::none) {
        state.brush_start.reset();
        state.brushed.reset();
        state.dragged = Handle::none;
        state.focused = {};
        announce();
        return;
      }
      break;
    default:
      break;
  }
  QWidget::keyPressEvent(event);
}

void ChartView::focusInEvent(QFocusEvent* event) {
  QWidget::focusInEvent(event);
  update();
}

void ChartView::focusOutEvent(QFocusEvent* event) {
  QWidget::focusOutEvent(event);
  update();
}

}  // namespace kvatlas::viewer
