// SPDX-License-Identifier: Apache-2.0
#include "viewer/maps/quantised_map.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "viewer/maps/colour_maps.hpp"

namespace kvatlas::viewer {

namespace {

constexpr std::int64_t kSampleValues = 16384;

/// Masked is lowest and missing highest, so that the greater of two is the one to show.
std::uint8_t to_order(std::uint8_t index) { return static_cast<std::uint8_t>(index + 1); }
std::uint8_t from_order(std::uint8_t order) { return static_cast<std::uint8_t>(order - 1); }
static_assert(kMaskedIndex == 255 && kMissingIndex == 254);

/// The cells of a tile that a pixel covers.
struct CellSpan {
  std::int64_t first = 0, last = 0;
  bool operator==(const CellSpan&) const = default;
};

/// Of the pixels begin to end - 1 of an axis, which lie in a slot.
struct PixelSpan {
  int begin = 0, end = 0;
};
PixelSpan pixels_of(double first_token, double tokens, double viewport_first, double per_pixel,
                    int size) {
  const auto pixel = [&](double token) {
    return static_cast<int>(
        std::clamp(std::round((token - viewport_first) / per_pixel), 0.0, double(size)));
  };
  return {pixel(first_token), pixel(first_token + tokens)};
}

CellSpan cells_at(double token, double per_pixel, std::int64_t block, std::int64_t tile_first,
                  std::int64_t count) {
  const auto cell = [&](double at) {
    return static_cast<std::int64_t>(std::floor(at / static_cast<double>(block))) - tile_first;
  };
  // A pixel belongs to the cell under its centre, and where cells are smaller to all it covers.
  const bool small = static_cast<double>(block) < per_pixel;
  std::int64_t first = small ? cell(token) : cell(token + per_pixel / 2);
  std::int64_t last = small ? cell(token + per_pixel * 0.999) + 1 : first + 1;
  first = std::clamp<std::int64_t>(first, 0, count - 1);
  last = std::clamp<std::int64_t>(last, first + 1, count);
  return {first, last};
}

/// A part of a tile by itself.
Tile cut(const Tile& tile, const CellPart& part) {
  Tile out{part.last_row - part.first_row, part.last_column - part.first_column, {}};
  for (std::int64_t row = part.first_row; row < part.last_row; ++row) {
    const auto first = tile.values.begin() + row * tile.columns;
    out.values.insert(out.values.end(), first + part.first_column, first + part.last_column);
  }
  return out;
}

Cells placed_cells(const PlacedTile& placed) { return cells_of(*placed.tile, placed.key); }

}  // namespace

CellPart cells_touched(const PlacedTile& placed, const TokenRectangle& part) {
  const Cells cells = placed_cells(placed);
  const auto span = [&](std::int64_t first, std::int64_t tokens, std::int64_t first_cell,
                        std::int64_t count) {
    const std::int64_t begin =
        std::clamp<std::int64_t>(first / placed.block - first_cell, 0, count);
    const std::int64_t end = (first + tokens + placed.block - 1) / placed.block - first_cell;
    return std::pair(begin, std::clamp(end, begin, count));
  };
  const auto rows = span(part.first_query, part.queries, cells.first_row, cells.rows);
  const auto columns = span(part.first_key, part.keys, cells.first_column, cells.columns);
  return {rows.first, rows.second, columns.first, columns.second};
}

TokenRectangle Viewport::tokens() const {
  const auto first_q = static_cast<std::int64_t>(std::floor(first_query));
  const auto first_k = static_cast<std::int64_t>(std::floor(first_key));
  return {first_q, first_k,
          static_cast<std::int64_t>(std::ceil(first_query + height * tokens_per_pixel)) - first_q,
          static_cast<std::int64_t>(std::ceil(first_key + width * tokens_per_pixel)) - first_k};
}

template <class Use>
void QuantisedMap::for_each_tile(Use use) const {
  std::vector<TileKey> taken;
  for (const PlacedTile& placed : tiles_) {
    if (!placed.tile || std::find(taken.begin(), taken.end(), placed.key) != taken.end()) continue;
    taken.push_back(placed.key);
    use(placed);
  }
}

void QuantisedMap::place(std::vector<PlacedTile> tiles, const TokenRectangle& sight) {
  tiles_ = std::move(tiles);
  sight_ = sight;
  std::unordered_map<TileKey, Indices, TileKeyHash> kept;
  for (const PlacedTile& placed : tiles_) {
    const auto found = indices_.find(placed.key);
    if (found != indices_.end() && found->second.of == placed.tile)
      kept.insert(indices_.extract(found));
  }
  indices_ = std::move(kept);
  if (!sample_.empty()) quantise_new();
}

void QuantisedMap::rescale(const ScaleSettings& settings) {
  settings_ = settings;
  auto sample = visible_sample();
  if (sample.empty()) return;
  const ScaleKind kind = settings.difference ? ScaleKind::linear : settings.kind;
  Range range = settings.difference ? symmetric_range(sample) : robust_range(sample, kind);
  if (settings.range) range = *settings.range;
  if (kind == ScaleKind::log && range.low <= 0)
    range.low = range.high > 0 ? range.high / 1e6 : 1e-6;
  const bool same = !sample_.empty() && kind == scale_.kind() && kind != ScaleKind::rank &&
                    range.low == scale_.range().low && range.high == scale_.range().high &&
                    !settings.per_row;
  sample_ = std::move(sample);
  if (!same) {
    scale_ = Scale(kind, range, sample_);
    indices_.clear();
  }
  quantise_new();
}

std::vector<float> QuantisedMap::visible_sample() const {
  std::vector<Tile> parts;  // owns what `visible` borrows
  parts.reserve(tiles_.size());
  std::vector<Cells> visible;
  for_each_tile([&](const PlacedTile& placed) {
    const CellPart part = cells_touched(placed, sight_);
    Tile& seen = parts.emplace_back(cut(*placed.tile, part));
    Cells cells = placed_cells(placed);
    cells.rows = seen.rows;
    cells.columns = seen.columns;
    cells.first_row += part.first_row;
    cells.first_column += part.first_column;
    const std::int64_t masked = (settings_.masked_keys + placed.block - 1) / placed.block;
    const auto maxima = settings_.per_row ? row_maxima(placed) : std::vector<float>();
    for (std::int64_t row = 0; row < seen.rows; ++row)
      for (std::int64_t column = 0; column < seen.columns; ++column) {
        float& value = seen.values[row * seen.columns + column];
        if (cells.first_column + column < masked)
          value = std::numeric_limits<float>::quiet_NaN();
        else if (!maxima.empty() && maxima[part.first_row + row] > 0)
          value /= maxima[part.first_row + row];
      }
    cells.values = seen.values;
    visible.push_back(cells);
  });
  return sample_visible(visible, kSampleValues);
}

std::vector<float> QuantisedMap::row_maxima(const PlacedTile& placed) const {
  std::vector<float> maxima(static_cast<std::size_t>(placed.tile->rows), 0.0F);
  for_each_tile([&](const PlacedTile& other) {
    if (other.key.level != placed.key.level || other.key.row != placed.key.row ||
        other.tile->rows != placed.tile->rows)
      return;
    CellPart part = cells_touched(other, sight_);
    part.first_row = 0;
    part.last_row = other.tile->rows;
    const Tile seen = cut(*other.tile, part);
    Cells cells = placed_cells(other);
    cells.columns = seen.columns;
    cells.first_column += part.first_column;
    cells.values = seen.values;
    raise_row_maxima(cells, maxima);
  });
  return maxima;
}

void QuantisedMap::quantise_new() {
  for (const PlacedTile& placed : tiles_) {
    if (!placed.tile || indices_.contains(placed.key)) continue;
    Indices made;
    made.of = placed.tile;
    made.values.resize(placed.tile->values.size());
    const auto maxima = settings_.per_row ? row_maxima(placed) : std::vector<float>();
    quantise(placed_cells(placed), scale_, maxima, made.values);
    indices_.emplace(placed.key, std::move(made));
    ++quantised_;
  }
}

QuantiseCounts QuantisedMap::counts() const {
  QuantiseCounts all;
  for_each_tile([&](const PlacedTile& placed) {
    const Cells cells = placed_cells(placed);
    const CellPart part = cells_touched(placed, sight_);
    const auto maxima = settings_.per_row ? row_maxima(placed) : std::vector<float>();
    for (std::int64_t row = part.first_row; row < part.last_row; ++row) {
      const double unit = !maxima.empty() && maxima[row] > 0 ? maxima[row] : 1;
      const double floor = scale_.range().low * unit;
      for (std::int64_t column = part.first_column; column < part.last_column; ++column) {
        if (cells.is_masked(row, column)) break;
        const auto value = static_cast<double>(cells.at(row, column));
        ++(std::isnan(value) ? all.missing : all.shown);
        if (value < floor) ++all.under_floor;
      }
    }
  });
  return all;
}

void QuantisedMap::draw(const Viewport& viewport, std::span<std::uint8_t> indices,
                        std::size_t stride) const {
  std::fill(indices.begin(), indices.end(), kMaskedIndex);
  const double per_pixel = viewport.tokens_per_pixel;
  std::vector<CellSpan> columns;
  for (const PlacedTile& placed : tiles_) {
    const auto slot_tokens = static_cast<double>(kTileSide * placed.slot_block);
    const PixelSpan down = pixels_of(static_cast<double>(placed.slot.row) * slot_tokens,
                                     slot_tokens, viewport.first_query, per_pixel, viewport.height);
    const PixelSpan across = pixels_of(static_cast<double>(placed.slot.column) * slot_tokens,
                                       slot_tokens, viewport.first_key, per_pixel, viewport.width);
    if (placed.failed) {
      for (int y = down.begin; y < down.end; ++y)
        for (int x = across.begin; x < across.end; ++x)
          if (viewport.first_key + x * per_pixel <= viewport.first_query + y * per_pixel)
            indices[static_cast<std::size_t>(y) * stride + static_cast<std::size_t>(x)] =
                kMissingIndex;
      continue;
    }
    const auto found = indices_.find(placed.key);
    if (!placed.tile || found == indices_.end()) continue;
    const auto& values = found->second.values;
    const Tile& tile = *placed.tile;
    // The map may end within the tile.
    const auto end_of = [&](std::int64_t first_cell, std::int64_t count, double first, int end) {
      const double token = static_cast<double>((first_cell + count) * placed.block);
      return static_cast<int>(
          std::clamp(std::round((token - first) / per_pixel), 0.0, static_cast<double>(end)));
    };
    const std::int64_t first_row = placed.key.row * kTileSide;
    const std::int64_t first_column = placed.key.column * kTileSide;
    const int bottom = end_of(first_row, tile.rows, viewport.first_query, down.end);
    const int right = end_of(first_column, tile.columns, viewport.first_key, across.end);
    columns.clear();
    for (int x = across.begin; x < right; ++x)
      columns.push_back(cells_at(viewport.first_key + x * per_pixel, per_pixel, placed.block,
                                 first_column, tile.columns));
    CellSpan drawn{-1, -1};
    for (int y = down.begin; y < bottom; ++y) {
      const CellSpan rows = cells_at(viewport.first_query + y * per_pixel, per_pixel, placed.block,
                                     first_row, tile.rows);
      std::uint8_t* line = indices.data() + static_cast<std::size_t>(y) * stride + across.begin;
      if (rows == drawn) {
        std::copy_n(line - stride, columns.size(), line);
        continue;
      }
      drawn = rows;
      for (std::size_t i = 0; i < columns.size(); ++i) {
        std::uint8_t order = 0;
        for (std::int64_t row = rows.first; row < rows.last; ++row)
          for (std::int64_t column = columns[i].first; column < columns[i].last; ++column)
            order = std::max(order, to_order(values[row * tile.columns + column]));
        line[i] = from_order(order);
      }
    }
  }
}

QuantisedMap::Edges QuantisedMap::edges(const Viewport& viewport, std::int64_t n_tokens,
                                        bool greatest) const {
  Edges edges;
  if (tiles_.empty()) return edges;
  edges.block = tiles_.front().slot_block;
  const TokenRectangle part = viewport.tokens();
  const auto cell_span = [&](std::int64_t first, std::int64_t count) {
    const std::int64_t begin = std::clamp<std::int64_t>(first, 0, n_tokens) / edges.block;
    const std::int64_t end =
        (std::clamp<std::int64_t>(first + count, 0, n_tokens) + edges.block - 1) / edges.block;
    return CellSpan{begin, std::max(begin, end)};
  };
  const CellSpan rows = cell_span(part.first_query, part.queries);
  const CellSpan columns = cell_span(part.first_key, part.keys);
  edges.first_row = rows.first;
  edges.first_column = columns.first;
  edges.rows.assign(static_cast<std::size_t>(rows.last - rows.first), 0);
  edges.columns.assign(static_cast<std::size_t>(columns.last - columns.first), 0);
  const auto block_tokens = [&](std::int64_t cell) {
    return static_cast<double>(std::min(edges.block, n_tokens - cell * edges.block));
  };
  for (const PlacedTile& placed : tiles_) {
    const std::int64_t first_row = placed.slot.row * kTileSide;
    const std::int64_t first_column = placed.slot.column * kTileSide;
    const CellSpan r{std::max(rows.first, first_row), std::min(rows.last, first_row + kTileSide)};
    const CellSpan c{std::max(columns.first, first_column),
                     std::min(columns.last, first_column + kTileSide)};
    const bool whole = placed.tile && placed.key == placed.slot;
    for (std::int64_t row = r.first; row < r.last; ++row) {
      double& row_sum = edges.rows[row - rows.first];
      for (std::int64_t column = c.first; column < std::min(c.last, row + 1); ++column) {
        double& column_sum = edges.columns[column - columns.first];
        if (!whole) {
          row_sum = column_sum = std::numeric_limits<double>::quiet_NaN();
          continue;
        }
        if (row - first_row >= placed.tile->rows || column - first_column >= placed.tile->columns)
          continue;
        const double value =
            placed.tile->values[(row - first_row) * placed.tile->columns + column - first_column];
        if (greatest) {
          if (std::abs(value) > std::abs(row_sum)) row_sum = value;
          if (std::abs(value) > std::abs(column_sum)) column_sum = value;
        } else {
          row_sum += value * block_tokens(column);
          column_sum += value * block_tokens(row);
        }
      }
    }
  }
  return edges;
}

std::optional<QuantisedMap::Value> QuantisedMap::value_at(std::int64_t query,
                                                          std::int64_t key) const {
  if (key > query || key < 0) return std::nullopt;
  for (const PlacedTile& placed : tiles_) {
    const std::int64_t tokens = kTileSide * placed.slot_block;
    if (!placed.tile || query / tokens != placed.slot.row || key / tokens != placed.slot.column)
      continue;
    const std::int64_t row = query / placed.block, column = key / placed.block;
    const Cells cells = placed_cells(placed);
    const std::int64_t r = row - cells.first_row, c = column - cells.first_column;
    if (r < 0 || c < 0 || r >= cells.rows || c >= cells.columns) return std::nullopt;
    Value found{cells.at(r, c), placed.block, row * placed.block, column * placed.block, 1, 0};
    for_each_tile([&](const PlacedTile& other) {
      if (other.key.level != placed.key.level || other.key.row != placed.key.row) return;
      const Cells row_cells = placed_cells(other);
      if (r >= row_cells.rows) return;
      const CellPart part = cells_touched(other, sight_);
      for (std::int64_t i = part.first_column; i < part.last_column && !row_cells.is_masked(r, i);
           ++i) {
        ++found.stored;
        if (row_cells.at(r, i) > found.value) ++found.rank;
      }
    });
    return found;
  }
  return std::nullopt;
}

}  // namespace kvatlas::viewer
