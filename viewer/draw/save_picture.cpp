// SPDX-License-Identifier: Apache-2.0
#include <QBuffer>
#include <QImageWriter>
#include <QPageSize>
#include <QPainter>
#include <QPdfWriter>
#include <QRegularExpression>
#include <QSvgGenerator>
#include <QtEndian>
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

void paint_whole(QPainter& painter, const Picture& picture, const Theme& theme,
                 const ImageOptions& options, QSizeF size) {
  const QRectF area({0, 0}, size);
  if (!options.transparent) painter.fillRect(area, theme.background);
  picture.paint(painter, area, theme);
  painter.end();
}

QString text_of_origin(const Origin& origin) {
  QString out;
  for (const auto& [what, text] : origin) out += QString::fromStdString(what + ": " + text + "\n");
  return out;
}

/// The metadata of a PDF file, as XMP.
QByteArray xmp_of(const std::string& title, const QString& description) {
  const auto words = [](const char* name, const QString& text) {
    return QString("<dc:%1><rdf:Alt><rdf:li xml:lang=\"x-default\">%2</rdf:li></rdf:Alt></dc:%1>")
        .arg(name, text.toHtmlEscaped());
  };
  return QString(
             "<?xpacket begin=\"\" id=\"W5M0MpCehiHzreSzNTczkc9d\"?>"
             "<x:xmpmeta xmlns:x=\"adobe:ns:meta/\">"
             "<rdf:RDF xmlns:rdf=\"http://www.w3.org/1999/02/22-rdf-syntax-ns#\">"
             "<rdf:Description rdf:about=\"\" xmlns:dc=\"http://purl.org/dc/elements/1.1/\">"
             "%1</rdf:Description></rdf:RDF></x:xmpmeta><?xpacket end=\"w\"?>")
      .arg(words("title", QString::fromStdString(title)) + words("description", description))
      .toUtf8();
}

/// Browsers blend the cells of an image that they enlarge, into colours that the scale does not
/// have, although QSvgGenerator asks them to optimise for speed. An image with a pixel for each of
/// the picture's is left as it is: a viewer that shrinks it would otherwise drop rows and columns
/// of it.
QString with_sharp_cells(const QString& svg) {
  static const QRegularExpression kImage(
      "<image [^>]*width=\"([^\"]*)\" height=\"([^\"]*)\"[^>]*image-rendering=\"(optimizeSpeed)\""
      "[^>]*base64,([^\"]{32})");
  constexpr qsizetype kWidth = 16, kHeight = 20;  // where a PNG file has its size
  QString out;
  qsizetype copied = 0;
  for (auto found = kImage.globalMatch(svg); found.hasNext();) {
    const auto image = found.next();
    const QByteArray head = QByteArray::fromBase64(image.captured(4).toLatin1());
    const auto pixels = [&](qsizetype at) { return qFromBigEndian<quint32>(head.data() + at); };
    if (pixels(kWidth) >= image.captured(1).toDouble() &&
        pixels(kHeight) >= image.captured(2).toDouble())
      continue;
    out += QStringView(svg).mid(copied, image.capturedStart(3) - copied);
    out += "pixelated";
    copied = image.capturedEnd(3);
  }
  return out + svg.mid(copied);
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
  QBuffer buffer;
  buffer.open(QIODevice::WriteOnly);
  QSvgGenerator generator;
  generator.setOutputDevice(&buffer);
  generator.setSize(size.toSize());
  generator.setViewBox(QRectF({0, 0}, size));
  generator.setResolution(96);
  QPainter painter(&generator);
  paint_whole(painter, picture, theme, options, size);
  QString svg = with_sharp_cells(without_repeats(QString::fromUtf8(buffer.data())));
  // QSvgGenerator writes these as they are, markup or not.
  set_element(svg, "title", QString::fromStdString(picture.title()));
  set_element(svg, "desc", text_of_origin(origin));
  return svg.toStdString();
}

std::string pdf_bytes(const Picture& picture, const Theme& theme, const ImageOptions& options,
                      const Origin& origin) {
  constexpr int kDotsPerInch = 96;
  const QSizeF size = picture_size(picture, options, 1);
  QBuffer buffer;
  buffer.open(QIODevice::WriteOnly);
  QPdfWriter writer(&buffer);
  writer.setTitle(QString::fromStdString(picture.title()));
  writer.setCreator("kvatlas");
  writer.setPageSize(QPageSize(size / kDotsPerInch, QPageSize::Inch, {}, QPageSize::ExactMatch));
  writer.setPageMargins(QMarginsF());
  writer.setResolution(kDotsPerInch);
  writer.setDocumentXmpMetadata(xmp_of(picture.title(), text_of_origin(origin)));
  QPainter painter(&writer);
  painter.setRenderHint(QPainter::LosslessImageRendering);  // JPEG would change the cells' colours
  paint_whole(painter, picture, theme, options, size);
  // Readers find objects by their place in the file: what goes leaves blanks.
  QByteArray pdf = buffer.data();
  const qsizetype date = pdf.indexOf("/CreationDate");
  const qsizetype end = pdf.indexOf(')', date);
  if (date >= 0 && end > date) pdf.replace(date, end + 1 - date, QByteArray(end + 1 - date, ' '));
  return pdf.toStdString();
}

void save_picture(const Picture& picture, const Theme& theme, const ImageOptions& options,
                  const Origin& origin, const std::filesystem::path& path, bool force) {
  std::string ending = path.extension().string();
  std::transform(ending.begin(), ending.end(), ending.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (ending != ".png" && ending != ".svg" && ending != ".pdf" && ending != ".csv")
    fail(ErrorCode::usage, quoted(path.string(), 400),
         " ends in neither .png, .svg, .pdf nor .csv, which says what to write");
  check_output(path, force);
  const std::string bytes = ending == ".png"   ? png_bytes(picture, theme, options, origin)
                            : ending == ".svg" ? svg_bytes(picture, theme, options, origin)
                            : ending == ".pdf" ? pdf_bytes(picture, theme, options, origin)
                                               : csv_bytes(picture, origin);
  write_whole(bytes, path, force);
}

}  // namespace kvatlas::viewer
