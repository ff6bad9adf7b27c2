// SPDX-License-Identifier: Apache-2.0
// What can be drawn anywhere: a widget, a PNG, an SVG, a report. Windows export what they show as
// pictures, and `kvatlas render` makes the same ones without a window.
#pragma once

#include <QImage>
#include <QRectF>
#include <QSizeF>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "viewer/draw/theme.hpp"
#include "viewer/models/chart.hpp"

class QPainter;

namespace kvatlas::viewer {

class Picture {
 public:
  virtual ~Picture() = default;
  virtual std::string title() const = 0;
  /// In units of a 96-dpi pixel, what reads well.
  virtual QSizeF size() const = 0;
  /// Fills the rectangle. Axes and text are drawn as vectors, cells of maps as one image.
  virtual void paint(QPainter& painter, const QRectF& area, const Theme& theme) const = 0;
  /// The numbers behind it, units and selection in lines that begin with '#'.
  virtual std::string csv() const = 0;
};
using PicturePtr = std::shared_ptr<const Picture>;

/// A chart with all that it has: series, marks, matrices, legend, notes below.
PicturePtr chart_picture(Chart chart);
/// One below the other, or side by side.
PicturePtr stacked_picture(std::string title, std::vector<PicturePtr> parts, bool side_by_side);

/// Where it comes from, in the file: tEXt chunks of a PNG, <title> and <desc> of an SVG, '#' lines
/// of a CSV. ("Profile", "smollm2.h5, fingerprint …"), ("Settings", "threshold=0.885").
using Origin = std::vector<std::pair<std::string, std::string>>;

struct ImageOptions {
  double scale = 1;  // device pixels a unit; PNG only
  bool transparent = false;
  QSizeF size = {};  // empty: the picture's own
};
QImage to_image(const Picture& picture, const Theme& theme, const ImageOptions& options);
/// By the ending: .png, .svg or .csv. Not over an existing file unless `force`; takes its name in
/// one step. Error(usage) for another ending or sizes beyond 32767 pixels.
void save_picture(const Picture& picture, const Theme& theme, const ImageOptions& options,
                  const Origin& origin, const std::filesystem::path& path, bool force);

}  // namespace kvatlas::viewer
