// SPDX-License-Identifier: Apache-2.0
#include "viewer/draw/map_makers.hpp"

#include <algorithm>
#include <array>
#include <charconv>

#include "base/error.hpp"
#include "base/str.hpp"
#include "viewer/draw/grid_picture.hpp"
#include "viewer/draw/map_scene.hpp"
#include "viewer/draw/text_flow.hpp"
#include "viewer/maps/viewport_moves.hpp"
#include "viewer/models/rows_model.hpp"
#include "viewer/models/token_texts.hpp"

namespace kvatlas::viewer {

namespace {

constexpr QSizeF kMapSize{1000, 760};

/// The sample asked for, or the first one that has maps.
std::size_t sample_with_maps(const TileSource& tiles, const PictureRequest& request) {
  if (request.sample) return *request.sample;
  for (const std::size_t sample : request.positions)
    if (!tiles.levels(sample).empty()) return sample;
  return request.positions.empty() ? 0 : request.positions.front();
}

std::vector<MapLevel> required_levels(const TileSource& tiles, const profile::Reader& profile,
                                      std::size_t sample) {
  auto levels = tiles.levels(sample);
  if (levels.empty())
    fail(ErrorCode::usage, "no maps were stored of the sample ",
         quoted(profile.samples()[sample].id),
         "; 'kvatlas profile --capture maps --map-samples N' stores those of the first N samples");
  return levels;
}

}  // namespace

std::unique_ptr<TileSource> tiles_of(const profile::Reader& profile) {
  return profile_tiles(
      std::shared_ptr<const profile::Reader>(std::shared_ptr<const void>(), &profile));
}

TokenRectangle parse_region(const std::string& text) {
  const auto wrong = [&](auto... why) {
    fail(ErrorCode::usage, "--region ", quoted(text), why...);
  };
  std::array<std::int64_t, 4> numbers{};
  const char* at = text.data();
  const char* const end = at + text.size();
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const auto read = std::from_chars(at, end, numbers[i]);
    const bool last = i + 1 == numbers.size();
    if (read.ec != std::errc() || numbers[i] < 0 || (read.ptr == end) != last ||
        (!last && *read.ptr != (i == 1 ? ',' : ':')))
      wrong(": expected queries and keys as 5000:5256,0:512");
    at = read.ptr + (last ? 0 : 1);
  }
  const auto [first_query, end_query, first_key, end_key] = numbers;
  if (end_query <= first_query || end_key <= first_key)
    wrong(" is empty: the end of a part lies behind its beginning");
  if (first_key >= end_query) wrong(" is empty: no query sees a key that comes after it");
  return {first_query, first_key, end_query - first_query, end_key - first_key};
}

namespace {

/// The part's own shape, as large as the usual map at most: the picture's size around it.
QSizeF size_for(const TokenRectangle& part) {
  constexpr double kLeastSide = 300;  // so that the legend has its place
  const QSizeF map = map_layout(QRectF({}, kMapSize), {}).map.size();
  const auto keys = static_cast<double>(part.keys), queries = static_cast<double>(part.queries);
  const double pixels = std::min(map.width() / keys, map.height() / queries);
  const QSizeF fitted(std::max(kLeastSide, keys * pixels), std::max(kLeastSide, queries * pixels));
  return kMapSize - map + fitted;
}

std::vector<PlacedTile> read_tiles(TileSource& tiles, const MapKey& key,
                                   const std::vector<MapLevel>& levels, const Viewport& viewport) {
  const int level = choose_level(levels, viewport.tokens_per_pixel);
  const MapLevel& about = levels[level];
  std::vector<PlacedTile> placed;
  for (const TileRequest& wanted : plan_tiles(key, level, about, viewport.tokens())) {
    if (wanted.priority != Priority::visible) break;
    PlacedTile tile;
    tile.slot = tile.key = wanted.key;
    tile.slot_block = tile.block = about.block_tokens;
    tile.tile = std::make_shared<const Tile>(tiles.read(wanted.key));
    placed.push_back(std::move(tile));
  }
  return placed;
}

std::vector<std::string> region_notes(const MapScene& scene) {
  const RegionStatistics found = region_statistics(scene);
  const TokenRectangle part = region_tokens(scene);
  return {str("queries ", part.first_query, " to ", part.first_query + part.queries - 1, ", keys ",
              part.first_key, " to ", part.first_key + part.keys - 1, ":"),
          str("sum ", fixed_text(found.sum, 4), ", mean ", fixed_text(found.mean, 4), ", greatest ",
              fixed_text(found.maximum, 4), ", entropy ", fixed_text(found.entropy, 2), " bits, ",
              fixed_text(100 * found.share_of_rows, 1), " % of its rows")};
}

}  // namespace

PicturePtr make_map_picture(const PictureSource& source, const PictureRequest& request) {
  const profile::Reader& profile = source.required_profile();
  const auto tiles = tiles_of(profile);
  const std::size_t sample = sample_with_maps(*tiles, request);
  const auto levels = required_levels(*tiles, profile, sample);
  const auto at = request.at.value_or(PictureRequest::Place{});
  MapKey key{sample, at.layer, at.head, Reduction::mean};
  const auto& about = profile.samples()[sample];
  MapScene scene;
  scene.n_tokens = about.n_tokens;
  scene.finest_block = levels.front().block_tokens;
  scene.title =
      str("Layer ", at.layer, ", head ", at.head, " · ", about.id, ", ", about.n_tokens, " tokens");
  const TokenRectangle part =
      request.region.value_or(TokenRectangle{0, 0, about.n_tokens, about.n_tokens});
  if (part.first_query + part.queries > about.n_tokens ||
      part.first_key + part.keys > about.n_tokens)
    fail(ErrorCode::usage, "--region ends at query ", part.first_query + part.queries, ", key ",
         part.first_key + part.keys, ": the sample ", quoted(about.id), " has ", about.n_tokens,
         " tokens");
  const QSizeF size = request.region ? size_for(part) : kMapSize;
  const QRectF map = map_layout(QRectF({}, size), scene).map;
  scene.viewport.width = static_cast<int>(map.width());
  scene.viewport.height = static_cast<int>(map.height());
  const auto keys = static_cast<double>(part.keys), queries = static_cast<double>(part.queries);
  scene.viewport.tokens_per_pixel =
      request.region ? std::max(keys / map.width(), queries / map.height())
                     : static_cast<double>(about.n_tokens) / std::min(map.width(), map.height());
  scene.viewport.first_query = static_cast<double>(part.first_query);
  scene.viewport.first_key = static_cast<double>(part.first_key);
  scene.viewport = limited(scene.viewport, about.n_tokens);
  auto quantised = std::make_shared<QuantisedMap>();
  quantised->place(read_tiles(*tiles, key, levels, scene.viewport), scene.viewport.tokens());
  quantised->rescale({});
  scene.map = std::move(quantised);
  if (request.region) {
    scene.region = part;
    key.reduction = Reduction::maximum;
    scene.other = read_tiles(*tiles, key, levels, scene.viewport);
    scene.notes = region_notes(scene);
  }
  return map_picture(std::move(scene), size);
}

PicturePtr make_grid_picture(const PictureSource& source, const PictureRequest& request) {
  const profile::Reader& profile = source.required_profile();
  const auto tiles = tiles_of(profile);
  const std::size_t sample = sample_with_maps(*tiles, request);
  const auto levels = required_levels(*tiles, profile, sample);
  const int level = thumbnail_level(levels);
  const auto& header = profile.header();
  GridScene scene;
  scene.title = str("Attention maps of ", header.model_name, " · ", profile.samples()[sample].id);
  scene.layers = header.n_layers;
  scene.heads = header.n_heads;
  scene.kv_heads = header.n_kv_heads;
  for (std::int64_t layer = 0; layer < header.n_layers; ++layer)
    for (std::int64_t head = 0; head < header.n_heads; ++head)
      scene.maps.push_back(std::make_shared<const Tile>(
          tiles->read({{sample, layer, head, Reduction::mean}, level, 0, 0})));
  return grid_picture(std::move(scene));
}

namespace {

struct LastRows {
  RowsModel model;
  std::vector<std::string> texts;  // of the prompt's tokens
};

LastRows last_rows_of(const PictureSource& source, const PictureRequest& request) {
  const profile::Reader& profile = source.required_profile();
  const std::size_t sample = sample_with_maps(*tiles_of(profile), request);
  const auto at = request.at.value_or(PictureRequest::Place{});
  RowsChoices choices;
  choices.layer = at.layer;
  if (request.at) choices.heads = {at.head};
  choices.kept_of_head = at.head;
  choices.keep = request.choices.lazy_arrays.keep;
  return {read_rows_model(profile, sample, choices), read_shown_texts(profile, sample)};
}

}  // namespace

PicturePtr make_rows_picture(const PictureSource& source, const PictureRequest& request) {
  const auto [model, texts] = last_rows_of(source, request);
  RowsView view = rows_view(model, {0, model.n_tokens}, texts);
  const std::string title = view.lines.title;
  return stacked_picture(
      title, {chart_picture(std::move(view.lines)), chart_picture(std::move(view.heatmap))}, false);
}

PicturePtr make_text_picture(const PictureSource& source, const PictureRequest& request) {
  const auto [model, texts] = last_rows_of(source, request);
  return text_picture(attended_text(model, texts));
}

}  // namespace kvatlas::viewer
