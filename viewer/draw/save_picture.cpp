// SPDX-License-Identifier: Apache-2.0
#include <QBuffer>
#include <QImageWriter>
#include <QPainter>
#include <QRegularExpression>
#include <QSvgGenerator>
#include <algorithm>
#include <string>

#include "base/error.hpp"
#include "base/whole_file.hpp"
#include "calibrate/policy/policy.hpp"
#include "viewer/draw/picture.hpp"
#include "viewer/draw/picture_impl.hpp"

namespace kvatlas::viewer {

namespace {

std::string one_line(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  std::replace(text.begin(), text.end(), '\r', ' ');
  return text;
}

/// Puts text between the first tags of that name.
void set_element(QString& svg, const QString& name, const QString& text) {
  const qsizetype start = svg.indexOf("<" + name + ">") + name.size() + 2;
  const qsizetype end = svg.indexOf("</" + name + ">");
  if (start <= end) svg.replace(start, end - start, text.toHtmlEscaped());
}

/// QSvgGenerator opens a group at each change of pen or brush, drawn with or not, and repeats in
/// each what holds anyway: three quarters of a chart's file. Groups lie in one around all, which
/// has the same pen; texts name their own fonts.
QString without_repeats(QString svg) {
  static const QRegularExpression kEmptyGroup("<g [^<]*>\\s*</g>\\s*");
  static const QRegularExpression kFontOfGroup(
      "\nfont-family=\"[^\"]*\" font-size=\"[^\"]*\" "
      "font-weight=\"[^\"]*\" font-style=\"[^\"]*\" \n>");
  svg.remove(kEmptyGroup);
  svg.replace(kFontOfGroup, ">");
  const qsizetype inside = svg.indexOf('>', svg.indexOf("<g ")) + 1;
  QString out = svg.left(inside), rest = svg.mid(inside);
  for (const char* held :
       {" transform=\"matrix(1,0,0,1,0,0)\"", " stroke-opacity=\"1\"", " stroke-width=\"1\"",
        " stroke-linecap=\"square\"", " stroke-linejoin=\"bevel\"", " vector-effect=\"none\"",
        " font-weight=\"400\"", " font-style=\"normal\""})
    rest.remove(held);
  // A text says so too, but that is not what it would inherit.
  static const QRegularExpression kOpaqueGroup("(<g [^>]*) fill-opacity=\"1\"");
  rest.replace(kOpaqueGroup, "\\1");
  // A group like the one that has just ended goes on.
  static const QRegularExpression kNextGroup("</g>\\s*(<g [^>]*>)");
  QString opened;
  qsizetype copied = 0;
  for (auto found = kNextGroup.globalMatch(rest); found.hasNext();) {
    const auto next = found.next();
    const QStringView before = QStringView(rest).mid(copied, next.capturedStart() - copied);
    out += before;
    if (next.captured(1) != opened || before.contains(QLatin1String("</g>")))
      out += "</g>\n" + next.captured(1);
    opened = next.captured(1);
    copied = next.capturedEnd();
  }
  return out + rest.mid(copied);
}

std::string csv_bytes(const Picture& picture, const Origin& origin) {
  std::string out;
  for (const auto& [what, text] : origin)
    out += "# " + one_line(what) + ": " + one_line(text) + "\n";
  return out + picture.csv();
}

}  // namespace

std::string png_bytes(const Picture& picture, const Theme& theme, const ImageOptions& options,
                      const Origin& origin) {
  return png_bytes(to_image(picture, theme, options), picture.title(), origin);
}

std::string png_bytes(QImage image, const std::string& title, const Origin& origin) {
  image.setText("Title", QString::fromStdString(title));
  image.setText("Software", "kvatlas");
  for (const auto& [what, text] : origin)
    image.setText(QString::fromStdString(what), QString::fromStdString(text));
  QBuffer buffer;
  buffer.open(QIODevice::WriteOnly);
  QImageWriter writer(&buffer, "png");
  if (!writer.write(image))
    fail(ErrorCode::resource, "making the PNG failed: ", writer.errorString().toStdString());
  return buffer.data().toStdString();
}

std::string svg_bytes(const Picture& picture, const Theme& theme, const ImageOptions& options,
                      const Origin& origin) {
  const QSizeF size = picture_size(picture, options, 1);
  QString description;
  for (const auto& [what, text] : origin)
    description += QString::fromStdString(what + ": " + text + "\n");
  QBuffer buffer;
  buffer.open(QIODevice::WriteOnly);
  QSvgGenerator generator;
  generator.setOutputDevice(&buffer);
  generator.setSize(size.toSize());
  generator.setViewBox(QRectF({0, 0}, size));
  generator.setResolution(96);
  QPainter painter(&generator);
  if (!options.transparent) painter.fillRect(QRectF({0, 0}, size), theme.background);
  picture.paint(painter, QRectF({0, 0}, size), theme);
  painter.end();
  QString svg = without_repeats(QString::fromUtf8(buffer.data()));
  // QSvgGenerator writes these as they are, markup or not.
  set_element(svg, "title", QString::fromStdString(picture.title()));
  set_element(svg, "desc", description);
  return svg.toStdString();
}

void save_picture(const Picture& picture, const Theme& theme, const ImageOptions& options,
                  const Origin& origin, const std::filesystem::path& path, bool force) {
  std::string ending = path.extension().string();
  std::transform(ending.begin(), ending.end(), ending.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (ending != ".png" && ending != ".svg" && ending != ".csv")
    fail(ErrorCode::usage, quoted(path.string(), 400),
         " ends in neither .png, .svg nor .csv, which says what to write");
  check_output(path, force);
  const std::string bytes = ending == ".png"   ? png_bytes(picture, theme, options, origin)
                            : ending == ".svg" ? svg_bytes(picture, theme, options, origin)
                                               : csv_bytes(picture, origin);
  write_whole(bytes, path, force);
}

}  // namespace kvatlas::viewer
