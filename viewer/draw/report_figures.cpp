// SPDX-License-Identifier: Apache-2.0
#include <QByteArray>
#include <algorithm>
#include <cctype>
#include <cmath>

#include "base/plain_text.hpp"
#include "base/str.hpp"
#include "base/text_count.hpp"
#include "viewer/draw/picture_impl.hpp"
#include "viewer/draw/report_parts_impl.hpp"

namespace kvatlas::viewer {

namespace {

constexpr std::size_t kLargestWithCells = 4 * kLargestSvg;
constexpr double kPngScale = 1.5;
constexpr std::size_t kLargestTwin = 100u << 10U;  // of larger ones there is no dark twin

struct Shown {
  std::string type, bytes;
};

/// As vectors, or, where these take much room, as pixels. Cells of matrices stay vectors longer,
/// and become pixels of the page's own size: a browser that shrinks them blends their colours.
Shown shown(const Picture& picture, const Theme& theme) {
  const auto charts = picture.charts();
  const bool cells = std::any_of(charts.begin(), charts.end(),
                                 [](const Chart* chart) { return !chart->matrices.empty(); });
  ImageOptions options;
  std::string svg = svg_bytes(picture, theme, options, {});
  if (svg.size() <= (cells ? kLargestWithCells : kLargestSvg))
    return {"image/svg+xml", std::move(svg)};
  options.scale = cells ? 1 : kPngScale;
  const QImage image = with_palette(to_image(picture, theme, options));
  return {"image/png", png_bytes(image, picture.title(), {})};
}

std::string data_uri(const Shown& image) {
  return "data:" + image.type + ";base64," +
         QByteArray::fromStdString(image.bytes).toBase64().toStdString();
}

nlohmann::json rectangle_data(const QRectF& area) {
  return {std::lround(area.x()), std::lround(area.y()), std::lround(area.width()),
          std::lround(area.height())};
}

/// What report.js tells of the picture where the pointer is.
nlohmann::json readout_data(const Readout& readout, QSizeF size) {
  nlohmann::json spots = nlohmann::json::array(), grids = spots;
  for (const auto& spot : readout.spots) spots.push_back(spot_data(spot));
  for (const auto& grid : readout.grids) {
    const Matrix& matrix = *grid.matrix;
    grids.push_back(
        {{"area", rectangle_data(grid.area)},
         {"label", matrix.label},
         {"unit", matrix.unit},
         {"rows", matrix.row_labels},
         {"columns", matrix.column_texts.empty() ? matrix.column_labels : matrix.column_texts},
         {"values", grid.values}});
  }
  return {{"size", {std::lround(size.width()), std::lround(size.height())}},
          {"spots", std::move(spots)},
          {"grids", std::move(grids)}};
}

/// The attributes of a table whose rows are the values of a setting that the picture has as an
/// upright line: report.js lets the reader move along them, from its present value.
std::string setting_attribute(const Table& table, const Readout& readout) {
  if (table.rows.size() > kMostRows || table.columns.empty()) return "";
  for (const auto& line : readout.lines)
    if (line.mark.vertical && line.mark.label == table.columns.front().title)
      return str("data-handle=\"", static_cast<int>(line.mark.handle), "\" data-at=\"",
                 exact_text(line.mark.at), "\" data-stops=\"[",
                 join(stops_of(first_column(table), line.mark.at), ",",
                      [](std::size_t stop) { return str(stop); }),
                 "]\"");
  return "";
}

}  // namespace

nlohmann::json spot_data(const Readout::Spot& spot) {
  return {rectangle_data(spot.area), spot.words};
}

std::string heading_of(const PictureEntry& entry) {
  std::string heading(entry.title);
  heading = heading.substr(0, heading.find(';'));
  heading.front() = static_cast<char>(std::toupper(static_cast<unsigned char>(heading.front())));
  return heading;
}

std::string image_element(const Picture& picture, ColourMap colours) {
  Theme light = make_theme(false, Headless::font()), dark = make_theme(true, Headless::font());
  light.colours = dark.colours = colours;
  const QSizeF size = picture.size();
  const Shown own = shown(picture, light);
  const std::string twin = own.bytes.size() > kLargestTwin
                               ? ""
                               : str("<source media=\"(prefers-color-scheme: dark)\" srcset=\"",
                                     data_uri(shown(picture, dark)), "\"/>");
  return str("<picture>", twin, "<img src=\"", data_uri(own), "\" alt=\"",
             html_text(picture.title()), "\" width=\"", std::lround(size.width()), "\" height=\"",
             std::lround(size.height()), "\"/></picture>");
}

std::string figure(const PictureEntry& entry, const Picture& picture, ColourMap colours,
                   const std::string& more, const std::string& attributes) {
  const QSizeF size = picture.size();
  const Readout readout =
      picture.readout(QRectF({0, 0}, size), make_theme(false, Headless::font()));
  std::string out =
      str("<figure id=\"", entry.name, "\"", attributes.empty() ? "" : " ", attributes, ">\n",
          element("h3", heading_of(entry)), "<div class=\"picture\"><div class=\"stage\">",
          image_element(picture, colours), "</div></div>\n");
  if (!readout.spots.empty() || !readout.grids.empty())
    out += data_element("class=\"readout\"", readout_data(readout, size));
  out += more;
  for (const Chart* chart : picture.charts())
    out += str("<details class=\"table\"><summary>Table: ", html_text(heading_of(entry)), ", ",
               count_of(chart->table.rows.size(), "row", "rows"), "</summary>\n",
               html_table(chart->table, picture.title(), setting_attribute(chart->table, readout)),
               "</details>\n");
  return out + "</figure>\n";
}

}  // namespace kvatlas::viewer
