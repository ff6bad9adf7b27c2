// SPDX-License-Identifier: Apache-2.0
#include "viewer/draw/picture.hpp"

#include <QBuffer>
#include <QFile>
#include <QImageReader>
#include <QPainter>
#include <QSvgRenderer>
#include <cstdlib>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "tests/gui/sample_charts.hpp"
#include "tests/support/model_bytes.hpp"
#include "tests/support/places.hpp"
#include "viewer/draw/picture_impl.hpp"

namespace kvatlas::viewer {
namespace {

using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;
using testing_gui::layers_chart;
using testing_gui::matrices_chart;

Theme theme(bool dark = false) { return make_theme(dark, QFont("DejaVu Sans", 10)); }

std::string content(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

const Origin kOrigin = {{"Profile", "p.h5, model <small>"}, {"Settings", "threshold=0.5"}};

TEST(Picture, SvgHoldsTextsAsTextAndItsOrigin) {
  const testing_support::TemporaryFolder folder;
  const auto path = folder.path() / "chart.svg";
  save_picture(*chart_picture(layers_chart()), theme(), {}, kOrigin, path, false);
  const std::string svg = content(path);
  EXPECT_THAT(svg, AllOf(StartsWith("<?xml"), HasSubstr("<title>Masses &lt;of&gt; four layers"),
                         HasSubstr("Profile: p.h5, model &lt;small&gt;"),
                         HasSubstr("Settings: threshold=0.5")));
  for (const char* text : {">layer</text>", "mass (share)", "tokens", "samples", "threshold 0.5",
                           "known", "a note below", "interval", "kept"})
    EXPECT_THAT(svg, HasSubstr(text));
  EXPECT_THAT(svg, Not(HasSubstr("<image")));
}

/// The darkest pixel of an area: how strongly its text is painted.
int darkest(const QImage& image, const QRect& area) {
  int least = 255;
  for (int y = area.top(); y <= area.bottom(); ++y)
    for (int x = area.left(); x <= area.right(); ++x)
      least = std::min(least, qGray(image.pixel(x, y)));
  return least;
}

TEST(Picture, SvgLooksLikeTheImage) {
  const auto picture = chart_picture(layers_chart());
  const QImage image = to_image(*picture, theme(), {});
  const std::string svg = svg_bytes(*picture, theme(), {}, {});
  QImage drawn(image.size(), image.format());
  drawn.fill(Qt::red);
  QPainter painter(&drawn);
  QSvgRenderer renderer(QByteArray::fromStdString(svg));
  ASSERT_TRUE(renderer.isValid());
  renderer.render(&painter);
  painter.end();
  double difference = 0;
  for (int y = 0; y < image.height(); ++y)
    for (int x = 0; x < image.width(); ++x)
      difference += std::abs(qGray(image.pixel(x, y)) - qGray(drawn.pixel(x, y)));
  EXPECT_LT(difference / (image.width() * image.height()), 4);
  // Title above, note below: texts do not take over how transparent a shape before them is.
  EXPECT_LT(darkest(drawn, {10, 8, 300, 20}), 80);
  EXPECT_LT(darkest(drawn, {10, image.height() - 26, 200, 20}), 140);
  EXPECT_LT(svg.size(), 40000);  // 104 kB as Qt writes it
}

TEST(Picture, PalettesHoldTheColoursThatAreThere) {
  for (const bool dark : {false, true}) {
    const auto picture = chart_picture(matrices_chart(4, 24));
    const QImage image = to_image(*picture, theme(dark), {});
    const QImage few = with_palette(image);
    EXPECT_LE(few.colorCount(), 256);
    EXPECT_EQ(few.dotsPerMeterX(), image.dotsPerMeterX());
    int far = 0;  // edges of text and lines
    for (int y = 0; y < image.height(); ++y)
      for (int x = 0; x < image.width(); ++x) {
        const QRgb a = image.pixel(x, y), b = few.pixel(x, y);
        far += std::max({std::abs(qRed(a) - qRed(b)), std::abs(qGreen(a) - qGreen(b)),
                         std::abs(qBlue(a) - qBlue(b))}) > 4;
      }
    EXPECT_LT(far, image.width() * image.height() / 200);
    EXPECT_LT(png_bytes(few, "", {}).size(), png_bytes(image, "", {}).size());
  }
}

TEST(Picture, SvgHoldsMatricesAsImages) {
  const testing_support::TemporaryFolder folder;
  const auto path = folder.path() / "maps.svg";
  save_picture(*chart_picture(matrices_chart(2, 5)), theme(), {}, {}, path, false);
  const std::string svg = content(path);
  EXPECT_THAT(svg, AllOf(HasSubstr("<image"), HasSubstr("head 1"), HasSubstr("delta 0.5")));
}

/// Each image of an SVG file, as its tag.
std::vector<std::string> images_of(const std::string& svg) {
  std::vector<std::string> out;
  for (auto at = svg.find("<image "); at != svg.npos; at = svg.find("<image ", at + 1))
    out.push_back(svg.substr(at, svg.find('>', at) - at));
  return out;
}

TEST(Picture, SvgKeepsTheEdgesOfCells) {
  const auto cells = images_of(svg_bytes(*chart_picture(matrices_chart(2, 5)), theme(), {}, {}));
  ASSERT_EQ(cells.size(), 3u);  // two matrices and the legend
  for (const auto& image : cells) EXPECT_THAT(image, HasSubstr("image-rendering=\"pixelated\""));
  EXPECT_THAT(cells[0], testing::ContainsRegex(" x=\"[0-9]+\" y=\"[0-9]+\" width=\"[0-9]+\" "));
  // One that has a pixel for each of the picture's would lose some of them where it is shrunk.
  const auto many = images_of(svg_bytes(*chart_picture(matrices_chart(1, 700)), theme(), {}, {}));
  EXPECT_THAT(many.at(0), Not(HasSubstr("pixelated")));
}

TEST(Picture, SquareMatricesAreEqualSquares) {
  for (const int count : {1, 3, 6}) {
    const auto picture = chart_picture(matrices_chart(count, 12));
    for (const QSizeF size : {picture->size(), QSizeF(340, 500), QSizeF(900, 200)}) {
      const auto grids = picture->readout(QRectF({0, 0}, size), theme()).grids;
      ASSERT_EQ(std::ssize(grids), count);
      for (const auto& grid : grids) {
        EXPECT_EQ(grid.area.width(), grid.area.height());
        EXPECT_EQ(grid.area.size(), grids.front().area.size());
      }
    }
  }
}

TEST(Picture, PartsAroundTheMarksCanBeLeftOut) {
  Theme bare = theme();
  bare.titles = bare.notes = bare.legends = false;
  const std::string svg = svg_bytes(*chart_picture(layers_chart()), bare, {}, {});
  EXPECT_THAT(svg, HasSubstr("<title>Masses &lt;of&gt; four layers"));  // for whoever has the file
  const auto in_sight = svg.substr(svg.find("</desc>"));
  EXPECT_THAT(in_sight, AllOf(Not(HasSubstr("Masses")), Not(HasSubstr("a note below")),
                              Not(HasSubstr("interval")), HasSubstr("mass (share)")));
  const auto cells = images_of(svg_bytes(*chart_picture(matrices_chart(2, 5)), bare, {}, {}));
  EXPECT_EQ(cells.size(), 2u);  // without the legend
}

TEST(Picture, PdfIsAPageOfTheSizeWithItsOrigin) {
  const auto picture = chart_picture(layers_chart());
  ImageOptions options;
  options.size = {336, 240};
  const std::string pdf = pdf_bytes(*picture, theme(), options, kOrigin);
  EXPECT_THAT(pdf, StartsWith("%PDF-1."));
  EXPECT_THAT(pdf,
              AllOf(HasSubstr("/MediaBox [0 0 252.000000 180.000000]"), HasSubstr("threshold=0.5"),
                    HasSubstr("p.h5, model &lt;small&gt;"), Not(HasSubstr("CreationDate"))));
  EXPECT_THAT(pdf, HasSubstr("/FontFile"));  // texts stay texts
  EXPECT_EQ(pdf, pdf_bytes(*picture, theme(), options, kOrigin));
  // JPEG would blend the colours of cells.
  EXPECT_THAT(pdf_bytes(*chart_picture(matrices_chart(2, 40)), theme(), {}, {}),
              AllOf(HasSubstr("/Subtype /Image"), Not(HasSubstr("/DCTDecode"))));
}

TEST(Picture, PngHasItsSizeResolutionAndOrigin) {
  const testing_support::TemporaryFolder folder;
  const auto path = folder.path() / "chart.PNG";
  ImageOptions options;
  options.scale = 2;
  options.size = {400, 300};
  save_picture(*chart_picture(layers_chart()), theme(), options, kOrigin, path, false);
  const std::string bytes = content(path);
  EXPECT_THAT(bytes, AllOf(HasSubstr("pHYs"), HasSubstr("tEXtProfile"), HasSubstr("tEXtSettings")));
  QImageReader reader(QString::fromStdString(path.string()));
  EXPECT_EQ(reader.text("Profile"), "p.h5, model <small>");
  const QImage image = reader.read();
  EXPECT_EQ(image.size(), QSize(800, 600));
  EXPECT_NEAR(image.dotsPerMeterX() * 0.0254, 192, 1);
  EXPECT_EQ(image.pixelColor(1, 1), theme().background);
}

TEST(Picture, TransparentOnesHaveNoGround) {
  ImageOptions options;
  options.transparent = true;
  const QImage image = to_image(*chart_picture(layers_chart()), theme(), options);
  EXPECT_EQ(image.size(), chart_picture(layers_chart())->size().toSize());
  EXPECT_EQ(image.pixelColor(1, 1).alpha(), 0);
}

TEST(Picture, CsvIsTheTable) {
  const testing_support::TemporaryFolder folder;
  const auto path = folder.path() / "chart.csv";
  save_picture(*chart_picture(layers_chart()), theme(), {}, kOrigin, path, false);
  EXPECT_EQ(content(path),
            "# Profile: p.h5, model <small>\n# Settings: threshold=0.5\n"
            "# Masses <of> four layers & more\n# a note below\nlayer,mass (share)\n0,0.25\n"
            "1,\"a,b\"\n");
}

TEST(Picture, RefusesWhatItCannotSave) {
  const testing_support::TemporaryFolder folder;
  const auto picture = chart_picture(layers_chart());
  const auto refusal = [&](const ImageOptions& options, const char* name) -> std::string {
    try {
      save_picture(*picture, theme(), options, {}, folder.path() / name, false);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::usage);
      return error.what();
    }
    return "saved";
  };
  EXPECT_THAT(refusal({}, "a.jpg"), HasSubstr("neither .png, .svg, .pdf nor .csv"));
  ImageOptions large;
  large.size = {20000, 10};
  large.scale = 2;
  EXPECT_THAT(refusal(large, "a.png"), HasSubstr("40000 x 20 pixels"));
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "a.png"));
  EXPECT_EQ(refusal({}, "a.csv"), "saved");
  EXPECT_THAT(refusal({}, "a.csv"), HasSubstr("is there already; --force replaces it"));
}

TEST(Picture, CellsHaveTheColoursOfThePalette) {
  Chart chart = matrices_chart(1, 3);
  auto& values = chart.matrices[0].values;
  values = {1, 0.5, 0, 0.25, 0.75, kNoNumber, 0, 1, 0.5};
  chart.matrices[0].outlines.clear();
  for (const auto colours : {ColourMap::viridis, ColourMap::cividis, ColourMap::grey}) {
    Theme look = theme();
    look.colours = colours;
    ImageOptions options;
    options.size = {700, 500};
    const QImage image = to_image(*chart_picture(chart), look, options);
    const auto has = [&](const QColor& wanted) {
      int count = 0;
      for (int y = 0; y < image.height(); ++y)
        for (int x = 0; x < 560; ++x)  // left of the legend
          if (image.pixelColor(x, y) == wanted) ++count;
      return count > 500;
    };
    EXPECT_TRUE(has(to_qcolor(colour_at(colours, 0))));
    EXPECT_TRUE(has(to_qcolor(colour_at(colours, 1))));
    EXPECT_TRUE(has(to_qcolor(colour_at(colours, 0.5))));
    EXPECT_TRUE(has(look.missing));  // between the hatches
  }
}

TEST(Picture, MarkedCellsAreFramed) {
  Chart chart = matrices_chart(1, 3);
  chart.matrices[0].outlines.clear();
  ImageOptions options;
  options.size = {700, 500};
  const auto image = [&] { return to_image(*chart_picture(chart), theme(), options); };
  const QImage plain = image();
  /// Where the image differs once this cell is marked; what it surrounds must not.
  const auto frame = [&](std::size_t row, std::size_t column) {
    chart.matrices[0].marked = {{row, column}};
    const QImage marked = image();
    QRect box;
    for (int y = 0; y < plain.height(); ++y)
      for (int x = 0; x < plain.width(); ++x)
        if (plain.pixel(x, y) != marked.pixel(x, y)) box |= QRect(x, y, 1, 1);
    const QRect within = box.adjusted(6, 6, -6, -6);
    EXPECT_EQ(plain.copy(within), marked.copy(within));
    return box;
  };
  const QRect low = frame(2, 0), high = frame(0, 2);
  EXPECT_GT(low.width(), 20);
  EXPECT_NEAR(low.width(), high.width(), 2);
  EXPECT_NEAR(high.left() - low.left(), 2 * low.width(), 12);
  EXPECT_NEAR(low.top() - high.top(), 2 * low.height(), 12);
}

TEST(Picture, StacksSideBySideAndBelow) {
  const auto part = chart_picture(layers_chart());
  const auto below = stacked_picture("both", {part, part}, false);
  const auto beside = stacked_picture("both", {part, part}, true);
  EXPECT_EQ(below->size(), QSizeF(part->size().width(), 2 * part->size().height()));
  EXPECT_EQ(beside->size(), QSizeF(2 * part->size().width(), part->size().height()));
  const QImage alone = to_image(*part, theme(), {});
  const QImage two = to_image(*below, theme(), {});
  EXPECT_EQ(two.copy(0, 0, alone.width(), alone.height()), alone);
  const std::string table = part->csv().substr(part->csv().find("\nlayer"));
  EXPECT_THAT(beside->csv(), EndsWith(table));  // once
  EXPECT_EQ(beside->csv().find("\nlayer"), beside->csv().size() - table.size());
}

/// Mean difference of colours, 0 to 255, after blurring: edges may lie half a pixel elsewhere.
double difference(const QImage& a, const QImage& b) {
  const QSize small = a.size() / 4;
  const auto shrunk = [&](const QImage& image) {
    return image.convertToFormat(QImage::Format_RGB32)
        .scaled(small, Qt::IgnoreAspectRatio, Qt::SmoothTransformation);
  };
  const QImage one = shrunk(a), other = shrunk(b);
  double sum = 0;
  for (int y = 0; y < small.height(); ++y)
    for (int x = 0; x < small.width(); ++x) {
      const QRgb p = one.pixel(x, y), q = other.pixel(x, y);
      sum += std::abs(qRed(p) - qRed(q)) + std::abs(qGreen(p) - qGreen(q)) +
             std::abs(qBlue(p) - qBlue(q));
    }
  return sum / (3.0 * small.width() * small.height());
}

/// KVATLAS_WRITE_REFERENCES=1 writes them anew: look at what it wrote.
void compare_with_reference(const Chart& chart, bool dark, const char* name) {
  ImageOptions options;
  options.size = {480, 300};
  const QImage image = to_image(*chart_picture(chart), theme(dark), options);
  const QString path =
      QString::fromStdString(
          (kvatlas::testing_support::source_folder() / "tests/gui/references").string()) +
      "/" + name + ".png";
  if (std::getenv("KVATLAS_WRITE_REFERENCES")) {
    ASSERT_TRUE(image.convertToFormat(QImage::Format_RGB32).save(path));
  }
  const QImage reference(path);
  ASSERT_EQ(reference.size(), image.size()) << name;
  EXPECT_LT(difference(image, reference), 1) << name;
  // The comparison sees what it must see.
  Chart other = chart;
  other.boxes.clear();
  other.bars.clear();
  for (auto& matrix : other.matrices)
    std::reverse(matrix.values.begin(), matrix.values.begin() + 40);
  EXPECT_GT(difference(to_image(*chart_picture(other), theme(dark), options), reference), 1.5);
}

TEST(Picture, LooksAsItDid) {
  compare_with_reference(layers_chart(), false, "layers-light");
  compare_with_reference(layers_chart(), true, "layers-dark");
  compare_with_reference(matrices_chart(6, 12), false, "matrices-light");
}

}  // namespace
}  // namespace kvatlas::viewer
