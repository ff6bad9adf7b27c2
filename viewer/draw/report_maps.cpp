// SPDX-License-Identifier: Apache-2.0
// Attention maps for the page of a report, as the codes in which a profile stores them. Of each
// head only the causal half is written, row by row; every code is less the one above it, which
// deflates better.
#include <QByteArray>
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <optional>

#include "base/share_code.hpp"
#include "base/str.hpp"
#include "viewer/draw/map_makers.hpp"
#include "viewer/draw/report_parts_impl.hpp"
#include "viewer/maps/colour_maps.hpp"
#include "viewer/maps/scale.hpp"
#include "viewer/maps/tiles.hpp"
#include "viewer/models/token_texts.hpp"

namespace kvatlas::viewer {

namespace {

using nlohmann::json;

constexpr std::size_t kMostSamples = 8;
constexpr std::int64_t kMostSide = 512;  // cells; finer levels are not written

/// One level of one head, put together from its tiles.
struct LevelCells {
  std::int64_t side = 0;
  std::vector<float> values;  // [side, side]
  Cells cells() const { return {values, side, side}; }
};

LevelCells read_level(TileSource& tiles, const MapKey& map, int level, std::int64_t side) {
  LevelCells out{side, std::vector<float>(static_cast<std::size_t>(side * side), 0.0F)};
  const std::int64_t across = (side + kTileSide - 1) / kTileSide;
  for (std::int64_t row = 0; row < across; ++row)
    for (std::int64_t column = 0; column <= row; ++column) {
      const TileKey key{map, level, row, column};
      const Tile tile = tiles.read(key);
      const Cells cells = cells_of(tile, key);
      for (std::int64_t r = 0; r < cells.rows; ++r)
        std::copy_n(cells.values.begin() + r * cells.columns, cells.columns,
                    out.values.begin() + (cells.first_row + r) * side + cells.first_column);
    }
  return out;
}

void append_codes(const Cells& cells, QByteArray& out) {
  for (std::int64_t row = 0; row < cells.rows; ++row)
    for (std::int64_t column = 0; column <= row; ++column) {
      const auto code = share_code::code_of(cells.at(row, column));
      const auto above = column < row ? share_code::code_of(cells.at(row - 1, column)) : 0;
      out.append(static_cast<char>(code - above));
    }
}

/// The range of a picture, as logarithms to base 2, to the nearest code.
json range_data(const Range& range) {
  const auto rounded = [](double share) {
    return std::round(std::log2(share) / share_code::kScale) * share_code::kScale;
  };
  return {rounded(range.low), rounded(range.high)};
}

/// A level of all heads of a sample, as text of the page.
struct WrittenLevel {
  json ranges = json::array();  // [layer * heads + head]
  std::string elements;
};

struct MapWriter {
  TileSource& tiles;
  const profile::Header& header;

  /// None if it would take more than `most_bytes`.
  std::optional<WrittenLevel> write(std::size_t sample, std::size_t number, int level,
                                    const MapLevel& about, std::size_t most_bytes) const {
    WrittenLevel out;
    for (std::int64_t layer = 0; layer < header.n_layers; ++layer) {
      QByteArray codes;
      for (std::int64_t head = 0; head < header.n_heads; ++head) {
        const LevelCells map =
            read_level(tiles, {sample, layer, head, Reduction::mean}, level, about.side);
        append_codes(map.cells(), codes);
        const std::array visible = {map.cells()};
        out.ranges.push_back(
            range_data(robust_range(sample_visible(visible, 16384), ScaleKind::log)));
      }
      out.elements += str("<script type=\"text/plain\" data-codes=\"", number, ".", level, ".",
                          layer, "\">", deflated(codes), "</script>\n");
      // The first layer tells what all will take.
      const auto layers = static_cast<std::size_t>(header.n_layers);
      if (out.elements.size() > most_bytes ||
          (layer == 0 && out.elements.size() * layers > most_bytes + most_bytes / 2))
        return std::nullopt;
    }
    return out;
  }
};

json level_data(int level, const MapLevel& about, json ranges) {
  return {{"level", level},
          {"block", about.block_tokens},
          {"side", about.side},
          {"ranges", std::move(ranges)}};
}

json sample_data(const profile::Reader& profile, std::size_t sample) {
  const auto& about = profile.samples()[sample];
  return {{"id", about.id},
          {"tokens", about.n_tokens},
          {"texts", read_shown_texts(profile, sample)},
          {"levels", json::array()}};
}

std::string palette_text(ColourMap colours) {
  std::string out;
  for (const Colour& colour : make_palette(colours, {}, {})) {
    std::array<char, 7> text{};
    std::snprintf(text.data(), text.size(), "%02x%02x%02x", colour.red, colour.green, colour.blue);
    out += text.data();
  }
  return out;
}

}  // namespace

std::string deflated(const QByteArray& bytes) {
  return qCompress(bytes, 9).mid(4).toBase64().toStdString();  // without the length that Qt writes
}

std::string maps_element(const profile::Reader& profile, const std::vector<std::size_t>& positions,
                         ColourMap colours, std::size_t most_bytes) {
  const auto tiles = tiles_of(profile);
  const auto& header = profile.header();
  const MapWriter writer{*tiles, header};
  std::string elements;
  const auto left = [&] { return most_bytes > elements.size() ? most_bytes - elements.size() : 0; };
  struct Written {
    std::size_t position = 0;
    int coarse = 0;
    std::vector<MapLevel> levels;
  };
  std::vector<Written> written;
  json samples = json::array();
  const auto write = [&](const Written& of, std::size_t number, int level) {
    auto found = writer.write(of.position, number, level, of.levels[level], left());
    if (!found) return false;
    elements += found->elements;
    samples[number]["levels"].push_back(
        level_data(level, of.levels[level], std::move(found->ranges)));
    return true;
  };
  // Of all samples first what thumbnails are made of, or what is coarser still; then as fine as
  // fits.
  for (const std::size_t position : positions) {
    if (written.size() == kMostSamples) break;
    Written of{position, 0, tiles->levels(position)};
    if (of.levels.empty() || of.levels.back().side > kMostSide) continue;
    const std::size_t number = written.size();
    samples.push_back(sample_data(profile, position));
    of.coarse = thumbnail_level(of.levels);
    const int coarsest = static_cast<int>(of.levels.size()) - 1;
    while (!write(of, number, of.coarse) && of.coarse < coarsest) ++of.coarse;
    if (samples.back()["levels"].empty()) {
      samples.erase(number);
      break;
    }
    written.push_back(std::move(of));
  }
  if (written.empty()) return "";
  for (std::size_t number = 0; number < written.size(); ++number)
    for (int level = 0; level < written[number].coarse; ++level)
      if (written[number].levels[level].side <= kMostSide && write(written[number], number, level))
        break;
  return data_element("id=\"maps-data\"", {{"layers", header.n_layers},
                                           {"heads", header.n_heads},
                                           {"step", share_code::kScale},
                                           {"one", share_code::kOne},
                                           {"unknown", share_code::kUnknown},
                                           {"first", kFirstIndex},
                                           {"last", kLastIndex},
                                           {"palette", palette_text(colours)},
                                           {"samples", std::move(samples)}}) +
         elements;
}

}  // namespace kvatlas::viewer
