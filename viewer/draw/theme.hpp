// SPDX-License-Identifier: Apache-2.0
// Colours and fonts of windows, pictures and reports, light and dark.
#pragma once

#include <QBrush>
#include <QColor>
#include <QFont>
#include <QPen>

#include "viewer/maps/colour_maps.hpp"
#include "viewer/models/chart.hpp"

class QApplication;

namespace kvatlas::viewer {

struct Theme {
  bool dark = false;
  QColor background, panel, text, faint_text, grid, accent, warning, missing;
  QFont font;                                        // titles are bold, labels of ticks are smaller
  ColourMap colours = ColourMap::viridis;            // of maps and matrices
  bool titles = true, notes = true, legends = true;  // what pictures have beside their marks
  /// The look of series `number`: one of the colours of Okabe and Ito (on dark ground white takes
  /// the place of black), with a dash of its own, so that colour is never the only difference.
  QPen series_pen(int number, Emphasis emphasis) const;
  QBrush series_brush(int number, Emphasis emphasis) const;  // strong: hatched
  QColor series_colour(int number) const;
};

Theme make_theme(bool dark, const QFont& font);
/// Gives all widgets the theme's palette, and check boxes an outline. Text contrast is at least 4.5
/// to 1.
void apply_theme(QApplication& application, const Theme& theme);

inline QColor to_qcolor(Colour colour) { return {colour.red, colour.green, colour.blue}; }

}  // namespace kvatlas::viewer
