// SPDX-License-Identifier: Apache-2.0
#include "viewer/draw/theme.hpp"

#include <QApplication>
#include <QPainter>
#include <QPalette>
#include <QProxyStyle>
#include <QStyleOption>
#include <array>

namespace kvatlas::viewer {

namespace {
constexpr std::array kDashes = {Qt::SolidLine, Qt::DashLine, Qt::DotLine, Qt::DashDotLine,
                                Qt::DashDotDotLine};

/// Draws check boxes with an outline that is seen on dark grounds too.
class OutlinedBoxes : public QProxyStyle {
 public:
  void drawPrimitive(PrimitiveElement element, const QStyleOption* option, QPainter* painter,
                     const QWidget* widget) const override {
    QProxyStyle::drawPrimitive(element, option, painter, widget);
    if (element != PE_IndicatorCheckBox) return;
    painter->save();
    painter->setPen(option->palette.color(QPalette::PlaceholderText));
    painter->setBrush(Qt::NoBrush);
    painter->drawRect(option->rect.adjusted(0, 0, -1, -1));
    painter->restore();
  }
};

}  // namespace

QColor Theme::series_colour(int number) const {
  const auto all = policy_colours();
  const auto at = static_cast<std::size_t>(number) % all.size();
  if (at == 0 && dark) return Qt::white;
  const QColor colour = to_qcolor(all[at]);
  // Yellow is hardly seen on white.
  const bool pale = !dark && colour.lightness() > 150 && colour.red() > 220 && colour.green() > 220;
  return pale ? colour.darker(135) : colour;
}

QPen Theme::series_pen(int number, Emphasis emphasis) const {
  QPen pen(series_colour(number), 1.5,
           kDashes.at(static_cast<std::size_t>(number) % kDashes.size()));
  if (emphasis == Emphasis::strong) pen.setWidthF(2.5);
  if (emphasis == Emphasis::reference)
    pen = QPen(faint_text, 1.2, number % 2 == 0 ? Qt::DashLine : Qt::DotLine);
  if (emphasis == Emphasis::faint) {
    QColor faded = pen.color();
    faded.setAlphaF(0.35F);
    pen.setColor(faded);
  }
  pen.setCosmetic(true);
  return pen;
}

QBrush Theme::series_brush(int number, Emphasis emphasis) const {
  QColor colour = series_colour(number);
  if (emphasis == Emphasis::strong) return {colour, Qt::BDiagPattern};
  colour.setAlphaF(emphasis == Emphasis::faint ? (dark ? 0.28F : 0.15F) : 0.35F);
  return colour;
}

Theme make_theme(bool dark, const QFont& font) {
  Theme theme;
  theme.dark = dark;
  theme.font = font;
  theme.background = QColor(dark ? "#16191d" : "#ffffff");
  theme.panel = QColor(dark ? "#1f2329" : "#f4f5f7");
  theme.text = QColor(dark ? "#e6e9ed" : "#1b1f24");
  theme.faint_text = QColor(dark ? "#a3acb8" : "#57606a");
  theme.grid = QColor(dark ? "#343b44" : "#d8dce1");
  theme.accent = QColor(dark ? "#58a6ff" : "#0969da");
  theme.warning = QColor(dark ? "#f0a35e" : "#a04a00");
  theme.missing = QColor(dark ? "#4a515a" : "#c4c9cf");
  return theme;
}

void apply_theme(QApplication& application, const Theme& theme) {
  QPalette palette;
  palette.setColor(QPalette::Window, theme.panel);
  palette.setColor(QPalette::WindowText, theme.text);
  palette.setColor(QPalette::Base, theme.background);
  palette.setColor(QPalette::AlternateBase, theme.panel);
  palette.setColor(QPalette::Text, theme.text);
  palette.setColor(QPalette::PlaceholderText, theme.faint_text);
  palette.setColor(QPalette::Button, theme.panel);
  palette.setColor(QPalette::ButtonText, theme.text);
  palette.setColor(QPalette::ToolTipBase, theme.panel);
  palette.setColor(QPalette::ToolTipText, theme.text);
  palette.setColor(QPalette::Highlight, theme.accent);
  palette.setColor(QPalette::HighlightedText, theme.dark ? QColor("#0b0d10") : QColor(Qt::white));
  palette.setColor(QPalette::Link, theme.accent);
  palette.setColor(QPalette::Mid, theme.grid);
  for (const auto role : {QPalette::WindowText, QPalette::Text, QPalette::ButtonText})
    palette.setColor(QPalette::Disabled, role, theme.faint_text);
  if (!dynamic_cast<const OutlinedBoxes*>(QApplication::style()))
    QApplication::setStyle(new OutlinedBoxes);
  application.setPalette(palette);
  application.setFont(theme.font);
}

}  // namespace kvatlas::viewer
