// SPDX-License-Identifier: Apache-2.0
#include "viewer/screens/head_grid.hpp"

#include <QAccessible>
#include <QHelpEvent>
#include <QMouseEvent>
#include <QPainter>
#include <QScrollBar>
#include <QToolTip>
#include <algorithm>
#include <cmath>

#include "base/str.hpp"
#include "viewer/draw/grid_picture.hpp"
#include "viewer/models/model_axes.hpp"

namespace kvatlas::viewer {

namespace {

constexpr int kLeastSize = 32, kLeastFitting = 48, kUsualSize = 64, kMostSize = 192;
constexpr int kGap = GridLayout::kGap, kLabel = GridLayout::kLabel, kHeader = GridLayout::kHeader,
              kStrip = GridLayout::kStrip, kLegend = GridLayout::kLegend;

}  // namespace

HeadGrid::HeadGrid(QWidget* parent)
    : QAbstractScrollArea(parent), theme_(make_theme(false, font())) {
  setFocusPolicy(Qt::StrongFocus);
  setAccessibleName(tr("All heads"));
  setFrameShape(QFrame::NoFrame);
  viewport()->setMouseTracking(true);
  thumbnails_.set_theme(theme_);
  connect(&thumbnails_, &Thumbnails::arrived, viewport(), qOverload<>(&QWidget::update));
}

void HeadGrid::set_maps(OpenedProfile* profile, std::size_t sample, Reduction reduction) {
  const bool same_profile = thumbnails_.profile() == profile;
  if (!thumbnails_.set_maps(profile, sample, reduction)) return;
  if (!same_profile) layout_.set_order({});
  layout_.set_model(profile ? profile->header().n_layers : 0,
                    profile ? profile->header().n_heads : 0);
  lay_out();
}

void HeadGrid::set_order(std::vector<Place> order) {
  layout_.set_order(std::move(order));
  lay_out();
  const int row = layout_.cell_of(layer_, head_).first;
  verticalScrollBar()->setValue(row * layout_.cell().height() - viewport()->height() / 3);
}

void HeadGrid::set_baseline(OpenedProfile* baseline) {
  thumbnails_.set_baseline(baseline);
  lay_out();
}

void HeadGrid::set_shown(std::vector<std::uint8_t> shown) {
  if (layout_.set_shown(std::move(shown))) lay_out();
}

void HeadGrid::set_decisions(std::vector<LayerDecision> decisions) {
  decisions_ = std::move(decisions);
  viewport()->update();
}

void HeadGrid::set_scale(ScaleKind kind, bool each_its_own) {
  thumbnails_.set_scale(kind, each_its_own);
  viewport()->update();
}

void HeadGrid::set_theme(const Theme& theme) {
  theme_ = theme;
  thumbnails_.set_theme(theme);
  viewport()->update();
}

void HeadGrid::set_thumbnail_size(int pixels) {
  size_is_chosen_ = true;
  set_size(std::clamp(pixels, kLeastSize, kMostSize));
  lay_out();
}

void HeadGrid::set_size(int pixels) {
  if (pixels == layout_.size()) return;
  layout_.set_size(pixels);
  thumbnails_.set_size(pixels);
}

/// A little smaller if all heads of a layer are in sight then.
void HeadGrid::fit_size() {
  if (size_is_chosen_ || layout_.ordered() || !thumbnails_.has_maps()) return;
  const int fitting = (viewport()->width() - layout_.left()) / layout_.columns() - kGap;
  set_size(fitting >= kLeastFitting ? std::min(fitting, kUsualSize) : kUsualSize);
}

void HeadGrid::lay_out() {
  const int height = layout_.cell().height(), top = verticalScrollBar()->value();
  fit_size();
  layout_.set_room(viewport()->size());
  const QSize whole = layout_.whole(), cell = layout_.cell();
  const auto set = [](QScrollBar* bar, int all, int room, int step) {
    bar->setRange(0, std::max(0, all - room));
    bar->setPageStep(room);
    bar->setSingleStep(step);
  };
  set(horizontalScrollBar(), whole.width(), viewport()->width(), cell.width());
  set(verticalScrollBar(), whole.height(), viewport()->height(), cell.height());
  // What was in sight stays there.
  if (cell.height() != height) verticalScrollBar()->setValue(top * cell.height() / height);
  scrolled();
}

void HeadGrid::scrolled() {
  layout_.set_scrolled({horizontalScrollBar()->value(), verticalScrollBar()->value()});
  want();
  viewport()->update();
}

std::vector<Thumbnails::Head> HeadGrid::heads_at(const std::vector<GridLayout::Cell>& cells) const {
  std::vector<Thumbnails::Head> heads;
  for (const auto& [row, column] : cells)
    if (const auto place = layout_.place_at(row, column))
      heads.emplace_back(place->layer, place->head);
  return heads;
}

std::vector<Thumbnails::Head> HeadGrid::in_sight() const { return heads_at(layout_.in_sight()); }

void HeadGrid::want() {
  if (!isVisible()) return;
  const auto seen = layout_.in_sight();
  thumbnails_.look_at(heads_at(seen), heads_at(layout_.around(seen)));
}

void HeadGrid::showEvent(QShowEvent* /*event*/) {
  if (thumbnails_.has_maps()) reveal();  // it had no room before
  want();
}
void HeadGrid::hideEvent(QHideEvent* /*event*/) { thumbnails_.look_at({}, {}); }

void HeadGrid::paintEvent(QPaintEvent* /*event*/) {
  QPainter painter(viewport());
  painter.fillRect(viewport()->rect(), theme_.background);
  if (!thumbnails_.has_maps()) {
    painter.setPen(theme_.faint_text);
    painter.drawText(viewport()->rect().adjusted(40, 40, -40, -40),
                     Qt::AlignCenter | Qt::TextWordWrap, thumbnails_.problem());
    return;
  }
  const double ratio = painter.deviceTransform().m11();
  QFont small = theme_.font;
  small.setPointSizeF(small.pointSizeF() * 0.85);
  painter.setFont(small);
  for (const auto& cell : layout_.in_sight()) paint_thumbnail(painter, cell, ratio);
  if (!layout_.ordered()) {
    paint_strip(painter);
    paint_header(painter);
  }
  paint_legend(painter);
  if (layout_.shown_count() > 0) return;
  painter.setPen(theme_.faint_text);
  painter.drawText(viewport()->rect(), Qt::AlignCenter, tr("No head matches the filter."));
}

void HeadGrid::paint_thumbnail(QPainter& painter, const GridLayout::Cell& cell, double ratio) {
  const Place place = *layout_.place_at(cell.first, cell.second);
  const QRect box = layout_.rectangle(cell.first, cell.second);
  if (const QPixmap* pixmap = thumbnails_.pixmap({place.layer, place.head}, ratio)) {
    painter.drawPixmap(box.topLeft(), *pixmap);
  } else {
    const bool failed = !thumbnails_.failure({place.layer, place.head}).isEmpty();
    painter.fillRect(box, failed ? QBrush(theme_.missing, Qt::BDiagPattern) : theme_.panel);
  }
  painter.setPen(theme_.grid);
  painter.drawRect(box.adjusted(-1, -1, 0, 0));
  if (layout_.ordered()) {
    const auto line = [&](int top, const QColor& colour, const QString& text) {
      painter.setPen(colour);
      painter.drawText(QRect(box.left(), top, layout_.cell().width(), kLabel),
                       Qt::AlignLeft | Qt::AlignVCenter, text);
    };
    line(box.bottom() + 1, theme_.text, QString("L%1.H%2").arg(place.layer).arg(place.head));
    line(box.bottom() + kLabel - 1, theme_.faint_text, QString::number(place.number, 'g', 3));
  }
  if (place.layer == layer_ && place.head == head_) {
    painter.setPen(QPen(theme_.text, 3));
    painter.drawRect(box.adjusted(-3, -3, 2, 2));
    painter.setPen(QPen(theme_.accent, hasFocus() ? 3 : 1));
    painter.drawRect(box.adjusted(-3, -3, 2, 2));
  }
}

void HeadGrid::paint_header(QPainter& painter) {
  painter.fillRect(0, 0, viewport()->width(), kHeader - 2, theme_.background);
  const auto& header = thumbnails_.profile()->header();
  const std::int64_t group = heads_per_kv_head(header);
  painter.setClipRect(kStrip - kGap, 0, viewport()->width(), kHeader);
  for (int column = 0; column < layout_.columns(); ++column) {
    const QRect box = layout_.rectangle(0, column);
    painter.setPen(column == head_ ? theme_.accent : theme_.text);
    painter.drawText(QRect(box.left(), kHeader - 18, layout_.size(), 16), Qt::AlignCenter,
                     QString("H%1").arg(column));
    if (column % group == 0) {
      const int right = box.left() + static_cast<int>(group) * layout_.cell().width() - kGap;
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
  for (int row = 0; row < layout_.rows(); ++row) {
    const QRect box = layout_.rectangle(row, 0);
    if (box.bottom() < 0 || box.top() > viewport()->height()) continue;
    const auto text = [&](int left, const QString& shown, const QColor& colour) {
      painter.setPen(colour);
      painter.drawText(QRect(left, box.top(), 40, box.height()), Qt::AlignLeft | Qt::AlignVCenter,
                       shown);
    };
    const std::int64_t layer = layout_.layer_of(row);
    text(2, QString("L%1").arg(layer), layer == layer_ ? theme_.accent : theme_.text);
    if (static_cast<std::size_t>(layer) >= decisions_.size()) continue;
    const LayerDecision& decision = decisions_[layer];
    if (decision.lazy) {
      // Filled and hatched: lazy; an empty frame: not.
      const QRect mark(38, box.center().y() - 7, 14, 14);
      painter.setPen(theme_.text);
      painter.setBrush(*decision.lazy ? QBrush(theme_.accent, Qt::BDiagPattern) : Qt::NoBrush);
      painter.drawRect(mark);
      painter.setBrush(Qt::NoBrush);
    }
    if (decision.budget >= 0) text(64, QString::number(decision.budget), theme_.text);
    if (!decision.blocks.empty()) text(110, QString::fromStdString(decision.blocks), theme_.text);
  }
}

void HeadGrid::paint_legend(QPainter& painter) {
  const int top = viewport()->height() - kLegend;
  painter.fillRect(0, top, viewport()->width(), kLegend, theme_.panel);
  painter.setPen(theme_.text);
  const char* names[] = {"linear", "log", "square root", "rank"};
  const OpenedProfile* baseline = thumbnails_.baseline();
  const QString whose =
      baseline ? tr("less %1, ").arg(QString::fromStdString(baseline->path().filename().string()))
               : QString();
  const QString what =
      tr("attention, %1%2 of blocks, %3")
          .arg(whose, thumbnails_.reduction() == Reduction::mean ? tr("mean") : tr("greatest"))
          .arg(names[static_cast<int>(thumbnails_.kind())]);
  const auto& range = thumbnails_.range();
  if (thumbnails_.each_its_own() || !range) {
    painter.drawText(
        QRect(8, top, viewport()->width() - 16, kLegend), Qt::AlignLeft | Qt::AlignVCenter,
        thumbnails_.each_its_own() ? what + tr("; each head with a range of its own") : what);
    return;
  }
  const int text = std::max(206, painter.fontMetrics().horizontalAdvance(what));
  painter.drawText(QRect(8, top, text, kLegend), Qt::AlignLeft | Qt::AlignVCenter, what);
  const QRect bar(text + 32, top + 4, std::min(220, viewport()->width() - text - 132), 9);
  if (bar.width() < 40) return;
  const ColourMap colours = baseline ? ColourMap::blue_white_brown : theme_.colours;
  for (int x = 0; x < bar.width(); ++x)
    painter.fillRect(bar.left() + x, bar.top(), 1, bar.height(),
                     to_qcolor(colour_at(colours, (x + 0.5) / bar.width())));
  for (const Tick& tick : ticks(Scale(thumbnails_.kind(), *range), 5))
    painter.drawText(QRect(bar.left() + static_cast<int>(tick.position * bar.width()) - 30,
                           bar.bottom() + 1, 60, 15),
                     Qt::AlignCenter, QString::fromStdString(tick.label));
}

QString HeadGrid::about(const Place& place) const {
  QString text = QString("L%1.H%2").arg(place.layer).arg(place.head);
  if (static_cast<std::size_t>(place.layer) < decisions_.size()) {
    const LayerDecision& decision = decisions_[place.layer];
    if (decision.lazy)
      text += *decision.lazy ? tr("\nlazy at the present threshold") : tr("\nnot lazy");
    if (decision.budget >= 0) text += tr("\nDynamicKV budget: %1 tokens").arg(decision.budget);
    if (!decision.blocks.empty())
      text += tr("\nheads that begin a PoD block: %1").arg(QString::fromStdString(decision.blocks));
  }
  const QString failure = thumbnails_.failure({place.layer, place.head});
  if (!failure.isEmpty()) text += "\n" + failure;
  return text;
}

bool HeadGrid::viewportEvent(QEvent* event) {
  if (event->type() == QEvent::ToolTip) {
    const auto* help = static_cast<QHelpEvent*>(event);
    if (const auto under = layout_.under(help->pos()))
      QToolTip::showText(help->globalPos(), about(*layout_.place_at(under->first, under->second)),
                         viewport());
    else
      QToolTip::hideText();
    return true;
  }
  return QAbstractScrollArea::viewportEvent(event);
}

PicturePtr HeadGrid::picture(const std::string& filter) const {
  if (!thumbnails_.has_maps()) return nullptr;
  const OpenedProfile& profile = *thumbnails_.profile();
  const auto& header = profile.header();
  GridScene scene;
  scene.title = str("Attention maps of ", header.model_name, ", ",
                    profile.samples()[thumbnails_.sample()].id);
  scene.layers = header.n_layers;
  scene.heads = header.n_heads;
  scene.kv_heads = header.n_kv_heads;
  scene.kind = thumbnails_.kind();
  scene.difference = thumbnails_.is_difference();
  if (scene.difference)
    scene.title += str(", less ", thumbnails_.baseline()->path().filename().string());
  if (!filter.empty()) scene.title += str(", ", filter);
  scene.shown = layout_.shown();
  scene.reduction = thumbnails_.reduction();
  for (std::int64_t layer = 0; layer < header.n_layers; ++layer)
    for (std::int64_t head = 0; head < header.n_heads; ++head)
      scene.maps.push_back(thumbnails_.tile({layer, head}));
  return grid_picture(std::move(scene));
}

void HeadGrid::choose(std::int64_t layer, std::int64_t head) {
  const OpenedProfile* profile = thumbnails_.profile();
  if (!profile || (layer == layer_ && head == head_)) return;
  layer_ = std::clamp<std::int64_t>(layer, 0, profile->header().n_layers - 1);
  head_ = std::clamp<std::int64_t>(head, 0, profile->header().n_heads - 1);
  reveal();
  setAccessibleDescription(about({layer_, head_, 0}));
  QAccessibleEvent changed(this, QAccessible::DescriptionChanged);
  QAccessible::updateAccessibility(&changed);
  viewport()->update();
  emit chosen(layer_, head_);
}

void HeadGrid::reveal() {
  const auto [row, column] = layout_.cell_of(layer_, head_);
  const QRect box = layout_.rectangle(row, column);
  const int left = layout_.ordered() ? 0 : kStrip, top = layout_.ordered() ? 0 : kHeader;
  const int bottom = viewport()->height() - kLegend - (layout_.cell().height() - layout_.size());
  const auto scroll = [](QScrollBar* bar, int before, int after) {
    if (before > 0) bar->setValue(bar->value() - before);
    if (after > 0) bar->setValue(bar->value() + after);
  };
  scroll(horizontalScrollBar(), left - box.left(), box.right() + kGap - viewport()->width());
  scroll(verticalScrollBar(), top - box.top(), box.bottom() + kGap - bottom);
}

bool HeadGrid::act(Act act) {
  if (!thumbnails_.has_maps()) return false;
  auto [row, column] = layout_.cell_of(layer_, head_);
  int down = 0, right = 0;
  const auto step = [](QScrollBar* bar, bool back) {
    bar->triggerAction(back ? QAbstractSlider::SliderSingleStepSub
                            : QAbstractSlider::SliderSingleStepAdd);
    return true;
  };
  switch (act) {
    case Act::left:
      right = -1;
      break;
    case Act::right:
      right = 1;
      break;
    case Act::up:
      down = -1;
      break;
    case Act::down:
      down = 1;
      break;
    case Act::enter:
      emit entered(layer_, head_);
      return true;
    case Act::zoom_in:
    case Act::zoom_out: {
      const int size = layout_.size();
      set_thumbnail_size(act == Act::zoom_in ? size * 4 / 3 : size * 3 / 4);
      return true;
    }
    case Act::pan_left:
    case Act::pan_right:
      return step(horizontalScrollBar(), act == Act::pan_left);
    case Act::pan_up:
    case Act::pan_down:
      return step(verticalScrollBar(), act == Act::pan_up);
    default:
      return false;
  }
  // A hidden layer's cell is that of the next one: it is the first to go to.
  if (layout_.is_shown(layer_, head_) || !layout_.place_at(row, column)) {
    row += down;
    column += right;
  }
  for (; row >= 0 && row < layout_.rows() && column >= 0 && column < layout_.columns();
       row += down, column += right)
    if (const auto place = layout_.place_at(row, column)) {
      choose(place->layer, place->head);
      break;
    }
  return true;
}

void HeadGrid::resizeEvent(QResizeEvent* /*event*/) { lay_out(); }

void HeadGrid::scrollContentsBy(int /*dx*/, int /*dy*/) { scrolled(); }

void HeadGrid::mousePressEvent(QMouseEvent* event) {
  if (const auto under = layout_.under(event->pos())) {
    const auto place = layout_.place_at(under->first, under->second);
    choose(place->layer, place->head);
  }
}

void HeadGrid::mouseDoubleClickEvent(QMouseEvent* event) {
  if (const auto under = layout_.under(event->pos())) {
    const auto place = layout_.place_at(under->first, under->second);
    emit entered(place->layer, place->head);
  }
}

}  // namespace kvatlas::viewer
