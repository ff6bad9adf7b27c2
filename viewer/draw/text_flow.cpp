// SPDX-License-Identifier: Apache-2.0
#include "viewer/draw/text_flow.hpp"

#include <QFontMetricsF>
#include <QHash>
#include <QPainter>
#include <algorithm>
#include <cmath>

#include "base/str.hpp"
#include "viewer/draw/chart_layout_impl.hpp"

namespace kvatlas::viewer {
namespace {

// Of the colour, so that text stays readable on it.
constexpr double kMostShade = 1, kMostShadeDark = 0.85;

QColor shaded(const Theme& theme, double shade) {
  const QColor from = theme.background,
               to = theme.dark ? QColor(0, 114, 178) : QColor(86, 180, 233);
  const double part = (theme.dark ? kMostShadeDark : kMostShade) * std::clamp(shade, 0.0, 1.0);
  const auto mixed = [part](int a, int b) {
    return static_cast<int>(std::lround(a + part * (b - a)));
  };
  return {mixed(from.red(), to.red()), mixed(from.green(), to.green()),
          mixed(from.blue(), to.blue())};
}

}  // namespace

void TextFlow::set(ShownText text, const QFont& font, double width) {
  text_ = std::move(text);
  font_ = font;
  const QFontMetricsF metrics(font_);
  ascent_ = metrics.ascent();
  line_height_ = std::ceil(metrics.height() * 1.35);
  QHash<QString, double> known;
  widths_.clear();
  widths_.reserve(text_.tokens.size());
  for (const auto& token : text_.tokens) {
    const QString word = QString::fromStdString(token.text);
    auto found = known.find(word);
    if (found == known.end()) found = known.insert(word, metrics.horizontalAdvance(word));
    widths_.push_back(*found);
  }
  width_ = width;
  lay_out();
}

void TextFlow::set_width(double width) {
  if (width == width_) return;
  width_ = width;
  lay_out();
}

void TextFlow::lay_out() {
  left_.assign(widths_.size(), 0);
  lines_.clear();
  double x = 0;
  bool new_line = true;
  for (std::size_t i = 0; i < widths_.size(); ++i) {
    if (new_line || x + widths_[i] > width_) {
      std::size_t first = i;
      while (!new_line && first > lines_.back() && !begins_word(first)) --first;
      if (!new_line && first == lines_.back()) first = i;
      lines_.push_back(first);
      x = 0;
      for (std::size_t moved = first; moved < i; ++moved) {
        left_[moved] = x;
        x += widths_[moved];
      }
    }
    left_[i] = x;
    x += widths_[i];
    new_line = text_.tokens[i].ends_line || i + 1 == text_.prompt_tokens;
  }
}

bool TextFlow::begins_word(std::size_t token) const {
  return text_.tokens[token].text.starts_with(' ') || text_.tokens[token - 1].text.ends_with(' ');
}

double paint_shades(QPainter& painter, const QRectF& area, const ShownText& text,
                    const Theme& theme) {
  if (text.most.empty()) return 0;
  constexpr double kBar = 90, kBarHeight = 12, kBetween = 6;
  painter.save();
  painter.setFont(sized_font(theme.font, kTickFont));
  const QFontMetricsF metrics(painter.font());
  const QString least = QString::fromStdString(text.least),
                most = QString::fromStdString(text.most);
  const double words = metrics.horizontalAdvance(least) + metrics.horizontalAdvance(most);
  const double width = words + kBar + 2 * kBetween;
  double x = area.right() - width;
  const auto write = [&](const QString& word) {
    painter.setPen(theme.text);
    const double room = metrics.horizontalAdvance(word);
    painter.drawText(QRectF(x, area.top(), room + 1, area.height()), Qt::AlignVCenter, word);
    x += room + kBetween;
  };
  write(least);
  const QRectF bar(std::round(x), std::round(area.center().y() - kBarHeight / 2), kBar, kBarHeight);
  for (int step = 0; step < static_cast<int>(kBar); ++step)
    painter.fillRect(QRectF(bar.left() + step, bar.top(), 1, kBarHeight),
                     shaded(theme, step / (kBar - 1)));
  painter.setPen(QPen(theme.faint_text, 1));
  painter.setBrush(Qt::NoBrush);
  painter.drawRect(bar);
  x = bar.right() + kBetween;
  write(most);
  painter.restore();
  return width;
}

double TextFlow::height() const { return static_cast<double>(lines_.size()) * line_height_; }

std::optional<std::size_t> TextFlow::token_at(const QPointF& place) const {
  if (place.y() < 0 || place.x() < 0 || place.y() >= height()) return std::nullopt;
  const auto line = static_cast<std::size_t>(place.y() / line_height_);
  const std::size_t end = line + 1 < lines_.size() ? lines_[line + 1] : widths_.size();
  for (std::size_t i = lines_[line]; i < end; ++i)
    if (place.x() < left_[i] + widths_[i]) return i;
  return std::nullopt;
}

QRectF TextFlow::area_of(std::size_t token) const {
  if (token >= widths_.size()) return {};
  const auto line = std::upper_bound(lines_.begin(), lines_.end(), token) - lines_.begin() - 1;
  return {left_[token], static_cast<double>(line) * line_height_, widths_[token], line_height_};
}

void TextFlow::paint(QPainter& painter, const QRectF& part, const Theme& theme,
                     const Marks& marks) const {
  if (lines_.empty()) return;
  const auto line_at = [&](double y) {
    return static_cast<std::size_t>(
        std::clamp(y / line_height_, 0.0, static_cast<double>(lines_.size() - 1)));
  };
  const std::size_t first = lines_[line_at(part.top())], last_line = line_at(part.bottom());
  const std::size_t end =
      last_line + 1 < lines_.size() ? lines_[last_line + 1] : text_.tokens.size();
  painter.setFont(font_);
  for (std::size_t i = first; i < end; ++i) {
    const ShownToken& token = text_.tokens[i];
    const QRectF area = area_of(i);
    const QRectF behind = area.adjusted(0, 1, 0, -1);
    if (token.shade > 0) painter.fillRect(behind, shaded(theme, token.shade));
    const bool faint = text_.faint_zeros && token.value == 0;
    painter.setPen(faint ? theme.faint_text : theme.text);
    const double base = area.top() + (line_height_ - QFontMetricsF(font_).height()) / 2 + ascent_;
    painter.drawText(QPointF(area.left(), base), QString::fromStdString(token.text));
    if (token.apart) {
      painter.setPen(QPen(theme.warning, 2));
      painter.drawLine(QPointF(area.left() + 0.5, area.bottom() - 2),
                       QPointF(area.right() - 0.5, area.bottom() - 2));
    }
  }
  painter.setBrush(Qt::NoBrush);
  const auto outline = [&](const QRectF& area, const QPen& pen) {
    painter.setPen(pen);
    painter.drawRect(area.adjusted(0.5, 1.5, -0.5, -1.5));
  };
  const auto begin =
      std::lower_bound(marks.found.begin(), marks.found.end(), first,
                       [](const auto& place, std::size_t token) { return place.second <= token; });
  for (auto place = begin; place != marks.found.end() && place->first < end; ++place) {
    QRectF area;  // of the place's tokens in one line
    for (std::size_t i = place->first; i < place->second; ++i) {
      const QRectF next = area_of(i);
      if (!area.isEmpty() && next.top() != area.top()) outline(area, QPen(theme.text, 1));
      area = area.isEmpty() || next.top() != area.top() ? next : area.united(next);
    }
    outline(area, QPen(theme.text, 1));
  }
  if (marks.chosen && *marks.chosen >= first && *marks.chosen < end)
    outline(area_of(*marks.chosen), QPen(theme.accent, 2));
}

namespace {

class TextPicture : public Picture {
 public:
  explicit TextPicture(ShownText text) : text_(std::move(text)) {
    chart_.title = text_.title;
    chart_.table = table_of({text_});
  }
  std::string title() const override { return text_.title; }
  QSizeF size() const override {
    TextFlow flow;
    flow.set(text_, make_theme(false, QFont("DejaVu Sans", 10)).font, kWidth - 2 * kMargin);
    return {kWidth, std::min(flow.height() + kTitle + kMargin, kMostHeight)};
  }
  void paint(QPainter& painter, const QRectF& area, const Theme& theme) const override {
    painter.fillRect(area, theme.background);
    QFont bold = theme.font;
    bold.setBold(true);
    painter.setFont(bold);
    painter.setPen(theme.text);
    const double title = theme.titles ? kTitle : kMargin / 2;
    const QRectF head(area.left() + kMargin, area.top(), area.width() - 2 * kMargin, title);
    const double legend =
        theme.legends && theme.titles ? paint_shades(painter, head, text_, theme) + kMargin : 0;
    if (theme.titles)
      painter.drawText(head, Qt::AlignVCenter | Qt::AlignLeft,
                       QFontMetricsF(bold).elidedText(QString::fromStdString(text_.title),
                                                      Qt::ElideRight, head.width() - legend));
    TextFlow flow;
    flow.set(text_, theme.font, area.width() - 2 * kMargin);
    painter.save();
    painter.translate(area.left() + kMargin, area.top() + title);
    const QRectF part(0, 0, area.width() - 2 * kMargin, area.height() - title);
    painter.setClipRect(part);
    flow.paint(painter, part, theme, {});
    painter.restore();
  }
  std::string csv() const override { return chart_csv(chart_); }
  std::vector<const Chart*> charts() const override { return {&chart_}; }

 private:
  static constexpr double kWidth = 960, kMargin = 16, kTitle = 40, kMostHeight = 20000;
  ShownText text_;
  Chart chart_;  // its title and table alone
};

}  // namespace

PicturePtr text_picture(ShownText text) { return std::make_shared<TextPicture>(std::move(text)); }

}  // namespace kvatlas::viewer
