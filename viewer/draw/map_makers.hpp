// SPDX-License-Identifier: Apache-2.0
// Pictures of maps made at once from a file, for `kvatlas render` and reports.
#pragma once

#include "viewer/draw/pictures.hpp"

namespace kvatlas::viewer {

/// The map of the head `at`; Error(usage) if the sample has no maps.
PicturePtr make_map_picture(const PictureSource& source, const PictureRequest& request);
/// Thumbnails of all heads.
PicturePtr make_grid_picture(const PictureSource& source, const PictureRequest& request);
/// The last rows of the head `at`.
PicturePtr make_rows_picture(const PictureSource& source, const PictureRequest& request);
/// "100:200,0:50": queries 100 to 199, keys 0 to 49; Error(usage) for what is no such text, for a
/// part that is empty, and for one that no query sees.
TokenRectangle parse_region(const std::string& text);

}  // namespace kvatlas::viewer
