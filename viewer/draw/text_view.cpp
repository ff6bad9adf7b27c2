// SPDX-License-Identifier: Apache-2.0
#include "viewer/draw/text_view.hpp"

#include <QGuiApplication>
#include <QHelpEvent>
#include <QMouseEvent>
#include <QPainter>
#include <QScrollBar>
#include <QToolTip>
#include <cmath>

namespace kvatlas::viewer {
namespace {
constexpr double kEdge = 12;    // left and right of the text
constexpr double kHeader = 30;  // room of the title, which does not scroll
}  // namespace

TextView::TextView(QWidget* parent)
    : QAbstractScrollArea(parent), theme_(make_theme(false, QGuiApplication::font())) {
  setFrameShape(QFrame::NoFrame);
  setHorizontalScrollBarPolicy(Qt::ScrollBarAlwaysOff);
  setVerticalScrollBarPolicy(Qt::ScrollBarAlwaysOn);
  setFocusPolicy(Qt::StrongFocus);
  setMinimumSize(220, 140);
}

double TextView::text_width() const { return viewport()->width() - 2 * kEdge; }

void TextView::set_text(ShownText text) {
  setAccessibleName(QString::fromStdString(text.title));
  flow_.set(std::move(text), theme_.font, text_width());
  if (marks_.chosen && *marks_.chosen >= flow_.text().tokens.size()) marks_.chosen.reset();
  fit_scroll_bar();
  viewport()->update();
}

void TextView::set_theme(const Theme& theme) {
  theme_ = theme;
  set_text(ShownText(flow_.text()));
}

void TextView::choose(std::optional<std::size_t> token) {
  if (token && *token >= flow_.text().tokens.size()) token.reset();
  marks_.chosen = token;
  viewport()->update();
  if (!token) return;
  const QRectF area = flow_.area_of(*token);
  const double top = verticalScrollBar()->value(), room = viewport()->height() - kHeader;
  if (area.top() < top || area.bottom() > top + room)
    verticalScrollBar()->setValue(static_cast<int>(area.center().y() - room / 2));
}

void TextView::set_found(std::vector<std::pair<std::size_t, std::size_t>> places) {
  marks_.found = std::move(places);
  viewport()->update();
}

QPointF TextView::in_text(const QPointF& place) const {
  return {place.x() - kEdge, place.y() - kHeader + verticalScrollBar()->value()};
}

QPoint TextView::place_of(std::size_t token) const {
  const QPointF middle = flow_.area_of(token).center();
  return QPointF(middle.x() + kEdge, middle.y() + kHeader - verticalScrollBar()->value()).toPoint();
}

void TextView::fit_scroll_bar() {
  const int room = static_cast<int>(viewport()->height() - kHeader);
  verticalScrollBar()->setPageStep(room);
  verticalScrollBar()->setSingleStep(static_cast<int>(flow_.line_height()));
  verticalScrollBar()->setRange(
      0, std::max(0, static_cast<int>(std::ceil(flow_.height() + kEdge)) - room));
}

bool TextView::viewportEvent(QEvent* event) {
  if (event->type() == QEvent::ToolTip) {
    const auto* help = static_cast<QHelpEvent*>(event);
    const auto token =
        help->pos().y() < kHeader ? std::nullopt : flow_.token_at(in_text(QPointF(help->pos())));
    if (token)
      QToolTip::showText(help->globalPos(), QString::fromStdString(words_of(text(), *token)), this);
    else
      QToolTip::hideText();
    return true;
  }
  return QAbstractScrollArea::viewportEvent(event);
}

void TextView::paintEvent(QPaintEvent* /*event*/) {
  QPainter painter(viewport());
  painter.fillRect(viewport()->rect(), theme_.background);
  QFont bold = theme_.font;
  bold.setBold(true);
  painter.setFont(bold);
  painter.setPen(theme_.text);
  const QRectF head(kEdge, 0, text_width(), kHeader);
  const double legend = paint_shades(painter, head, text(), theme_);
  const QString title = QFontMetricsF(bold).elidedText(
      QString::fromStdString(text().title), Qt::ElideRight, text_width() - legend - kEdge);
  painter.drawText(head, Qt::AlignVCenter | Qt::AlignLeft, title);
  const double top = verticalScrollBar()->value(), room = viewport()->height() - kHeader;
  painter.setClipRect(QRectF(0, kHeader, viewport()->width(), room));
  painter.translate(kEdge, kHeader - top);
  flow_.paint(painter, QRectF(0, top, text_width(), room), theme_, marks_);
}

void TextView::resizeEvent(QResizeEvent* /*event*/) {
  flow_.set_width(text_width());
  fit_scroll_bar();
}

void TextView::mousePressEvent(QMouseEvent* event) {
  if (event->button() != Qt::LeftButton || event->position().y() < kHeader) return;
  if (const auto token = flow_.token_at(in_text(event->position()))) emit token_chosen(*token);
}

}  // namespace kvatlas::viewer
