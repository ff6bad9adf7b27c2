// SPDX-License-Identifier: Apache-2.0
// Paints the parts of a map that lie around its cells or on them.
#pragma once

#include "viewer/draw/map_scene.hpp"

namespace kvatlas::viewer {

void paint_edges(QPainter& painter, const MapLayout& layout, const Theme& theme,
                 const MapScene& scene);
void paint_legend(QPainter& painter, const MapLayout& layout, const Theme& theme,
                  const MapScene& scene);
void paint_overlays(QPainter& painter, const MapLayout& layout, const Theme& theme,
                    const MapScene& scene);
void paint_axes(QPainter& painter, const MapLayout& layout, const Theme& theme,
                const MapScene& scene);
/// Paints, within `area`, the lines from the cursor's cell to both edges, and the cursor's text.
void paint_hover(QPainter& painter, const QRectF& area, const Theme& theme, const MapScene& scene,
                 std::int64_t query, std::int64_t key, QString text);

}  // namespace kvatlas::viewer
