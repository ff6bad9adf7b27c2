// SPDX-License-Identifier: Apache-2.0
// Pictures, which can be drawn into a widget, a PNG, SVG or PDF file, or a report. The window
// exports what it shows as a picture, and `kvatlas render` makes the same pictures without a
// window.
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

/// What can be read off a picture, for those who draw it where nobody can ask it: in a report.
struct Readout {
  /// A point, a bar or a box, and what it says.
  struct Spot {
    QRectF area;
    std::string words;
  };
  /// The cells of a matrix.
  struct Grid {
    QRectF area;
    const Matrix* matrix = nullptr;  // of the picture that was asked
    std::vector<std::string> values;
  };
  /// A line that a setting moves, across the plot.
  struct Line {
    Mark mark;  // as the window has it, at its present value
  };
  std::vector<Spot> spots;
  std::vector<Grid> grids;
  std::vector<Line> lines;
};

class Picture {
 public:
  virtual ~Picture() = default;
  virtual std::string title() const = 0;
  /// The size at which it reads well, in pixels of 96 dpi.
  virtual QSizeF size() const = 0;
  /// Fills the rectangle. Axes and text are drawn as vectors, the cells of a map as one image.
  virtual void paint(QPainter& painter, const QRectF& area, const Theme& theme) const = 0;
  /// The numbers behind the picture; lines that begin with '#' say what they are of.
  virtual std::string csv() const = 0;
  /// The charts whose tables csv() writes; none of maps, whose CSV is made cell by cell.
  virtual std::vector<const Chart*> charts() const { return {}; }
  /// What lies where if the picture is painted in this area; nothing of maps.
  virtual Readout readout(const QRectF& /*area*/, const Theme& /*theme*/) const { return {}; }
};
using PicturePtr = std::shared_ptr<const Picture>;

/// A picture of a chart, with its title, legend and notes.
PicturePtr chart_picture(Chart chart);
/// Several pictures, one below the other or side by side.
PicturePtr stacked_picture(std::string title, std::vector<PicturePtr> parts, bool side_by_side);

/// What a picture was made from, as names and values such as ("Settings", "threshold=0.885"). A PNG
/// file keeps it in tEXt chunks, an SVG file in <desc>, a PDF file in its metadata, a CSV file in
/// lines that begin with '#'.
using Origin = std::vector<std::pair<std::string, std::string>>;

struct ImageOptions {
  double scale = 1;  // device pixels for each pixel of 96 dpi; of PNG files alone
  bool transparent = false;
  QSizeF size = {};  // empty: the picture's own size
};
QImage to_image(const Picture& picture, const Theme& theme, const ImageOptions& options);
/// Writes a picture as PNG, SVG, PDF or CSV, by the ending of the path. The file takes its name in
/// one step, and replaces an existing one only if `force` is set. Throws Error(usage) for another
/// ending, and for a size beyond 32767 pixels.
void save_picture(const Picture& picture, const Theme& theme, const ImageOptions& options,
                  const Origin& origin, const std::filesystem::path& path, bool force);

}  // namespace kvatlas::viewer
