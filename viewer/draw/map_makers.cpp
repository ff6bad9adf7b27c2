// SPDX-License-Identifier: Apache-2.0
#include "viewer/draw/map_makers.hpp"

#include <algorithm>

#include "kernels/base/error.hpp"
#include "kernels/base/str.hpp"
#include "viewer/draw/grid_picture.hpp"
#include "viewer/draw/map_scene.hpp"
#include "viewer/models/rows_model.hpp"
#include "viewer/models/token_texts.hpp"

namespace kvatlas::viewer {

namespace {

constexpr QSizeF kMapSize{1000, 760};

/// A tile source on a reader that someone else owns.
std::unique_ptr<TileSource> tiles_of(const profile::Reader& profile) {
  return profile_tiles(
      std::shared_ptr<const profile::Reader>(std::shared_ptr<const void>(), &profile));
}

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

PicturePtr make_map_picture(const PictureSource& source, const PictureRequest& request) {
  const profile::Reader& profile = source.required_profile();
  const auto tiles = tiles_of(profile);
  const std::size_t sample = sample_with_maps(*tiles, request);
  const auto levels = required_levels(*tiles, profile, sample);
  const auto at = request.at.value_or(PictureRequest::Place{});
  const MapKey key{sample, at.layer, at.head, Reduction::mean};
  const auto& about = profile.samples()[sample];
  MapScene scene;
  scene.n_tokens = about.n_tokens;
  scene.finest_block = levels.front().block_tokens;
  scene.title =
      str("Layer ", at.layer, ", head ", at.head, " · ", about.id, ", ", about.n_tokens, " tokens");
  const QRectF map = map_layout(QRectF({}, kMapSize), scene).map;
  const double side = std::min(map.width(), map.height());
  scene.viewport = {0, 0, static_cast<double>(about.n_tokens) / side, static_cast<int>(map.width()),
                    static_cast<int>(map.height())};
  const int level = choose_level(levels, scene.viewport.tokens_per_pixel);
  std::vector<PlacedTile> placed;
  for (const TileRequest& wanted :
       plan_tiles(key, level, levels[static_cast<std::size_t>(level)], scene.viewport.tokens())) {
    if (wanted.priority != Priority::visible) break;
    PlacedTile tile;
    tile.slot = tile.key = wanted.key;
    tile.slot_block = tile.block = levels[static_cast<std::size_t>(level)].block_tokens;
    tile.tile = std::make_shared<const Tile>(tiles->read(wanted.key));
    placed.push_back(std::move(tile));
  }
  auto quantised = std::make_shared<QuantisedMap>();
  quantised->place(std::move(placed));
  quantised->rescale({});
  scene.map = std::move(quantised);
  return map_picture(std::move(scene), kMapSize);
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

PicturePtr make_rows_picture(const PictureSource& source, const PictureRequest& request) {
  const profile::Reader& profile = source.required_profile();
  const std::size_t sample = sample_with_maps(*tiles_of(profile), request);
  const auto at = request.at.value_or(PictureRequest::Place{});
  RowsChoices choices;
  choices.layer = at.layer;
  if (request.at) choices.heads = {at.head};
  choices.kept_of_head = at.head;
  choices.keep = request.choices.lazy_arrays.keep;
  const RowsModel model = read_rows_model(profile, sample, choices);
  std::vector<std::string> texts;
  for (const auto& text : read_token_texts(profile, sample)) texts.push_back(shown_text(text));
  RowsView view = rows_view(model, {0, model.n_tokens}, texts);
  const std::string title = view.lines.title;
  return stacked_picture(
      title, {chart_picture(std::move(view.lines)), chart_picture(std::move(view.heatmap))}, false);
}

}  // namespace kvatlas::viewer
