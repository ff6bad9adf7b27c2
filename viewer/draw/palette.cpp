// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "viewer/draw/picture_impl.hpp"

namespace kvatlas::viewer {

namespace {

/// Colours that agree in the six highest bits of each part.
struct Bin {
  std::uint64_t count = 0;
  std::array<std::uint64_t, 3> sum = {};
  QRgb mean() const {
    const auto part = [this](std::size_t i) { return static_cast<int>(sum[i] / count); };
    return qRgb(part(0), part(1), part(2));
  }
};

std::size_t bin_of(QRgb colour) {
  const auto part = [](int value) { return static_cast<std::size_t>(value) >> 2U; };
  return part(qRed(colour)) << 12U | part(qGreen(colour)) << 6U | part(qBlue(colour));
}

int distance(QRgb a, QRgb b) {
  const int red = qRed(a) - qRed(b), green = qGreen(a) - qGreen(b), blue = qBlue(a) - qBlue(b);
  return red * red + green * green + blue * blue;
}

}  // namespace

QImage with_palette(const QImage& image) {
  const QImage from = image.convertToFormat(QImage::Format_RGB32);
  std::vector<Bin> bins(std::size_t{1} << 18U);
  const auto pixels = [&from](int row) {
    return reinterpret_cast<const QRgb*>(from.constScanLine(row));
  };
  for (int row = 0; row < from.height(); ++row)
    for (int column = 0; column < from.width(); ++column) {
      const QRgb colour = pixels(row)[column];
      Bin& bin = bins[bin_of(colour)];
      ++bin.count;
      bin.sum[0] += static_cast<std::uint64_t>(qRed(colour));
      bin.sum[1] += static_cast<std::uint64_t>(qGreen(colour));
      bin.sum[2] += static_cast<std::uint64_t>(qBlue(colour));
    }
  std::vector<std::size_t> used;
  for (std::size_t i = 0; i < bins.size(); ++i)
    if (bins[i].count > 0) used.push_back(i);
  std::stable_sort(used.begin(), used.end(),
                   [&](std::size_t a, std::size_t b) { return bins[a].count > bins[b].count; });
  QList<QRgb> colours;
  std::vector<std::uint8_t> index(bins.size());
  for (const auto bin : used) {
    const QRgb mean = bins[bin].mean();
    if (colours.size() < 256) {
      index[bin] = static_cast<std::uint8_t>(colours.size());
      colours.push_back(mean);
      continue;
    }
    const auto nearest = std::min_element(colours.begin(), colours.end(), [mean](QRgb a, QRgb b) {
      return distance(a, mean) < distance(b, mean);
    });
    index[bin] = static_cast<std::uint8_t>(nearest - colours.begin());
  }
  QImage out(from.size(), QImage::Format_Indexed8);
  out.setColorTable(colours);
  for (int row = 0; row < from.height(); ++row) {
    std::uint8_t* line = out.scanLine(row);
    for (int column = 0; column < from.width(); ++column)
      line[column] = index[bin_of(pixels(row)[column])];
  }
  out.setDotsPerMeterX(image.dotsPerMeterX());
  out.setDotsPerMeterY(image.dotsPerMeterY());
  return out;
}

}  // namespace kvatlas::viewer
