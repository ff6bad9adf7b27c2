// SPDX-License-Identifier: Apache-2.0
// Pictures of attention maps for `kvatlas render` and reports, which read the maps from the
// profile.
#pragma once

#include <memory>
#include <string>

#include "viewer/draw/pictures.hpp"
#include "viewer/maps/tiles.hpp"

namespace kvatlas::viewer {

/// The maps of a profile that someone else owns.
std::unique_ptr<TileSource> tiles_of(const profile::Reader& profile);
/// The map of the head that the request names. Throws Error(usage) if the sample has no maps.
PicturePtr make_map_picture(const PictureSource& source, const PictureRequest& request);
/// The maps of all heads, small.
PicturePtr make_grid_picture(const PictureSource& source, const PictureRequest& request);
/// The attention of the last rows, of the head that the request names.
PicturePtr make_rows_picture(const PictureSource& source, const PictureRequest& request);
/// The prompt as text, shaded by that attention.
PicturePtr make_text_picture(const PictureSource& source, const PictureRequest& request);
/// The rectangle that a text names: "100:200,0:50" is queries 100 to 199 and keys 0 to 49. Throws
/// Error(usage) for any other text, for an empty rectangle, and for one whose keys all come after
/// its queries.
TokenRectangle parse_region(const std::string& text);

}  // namespace kvatlas::viewer
