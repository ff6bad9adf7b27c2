// SPDX-License-Identifier: Apache-2.0
// The parts of a painted map around its cells.
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
/// The cursor's lines to both edges, and what it says, in `area`.
void paint_hover(QPainter& painter, const QRectF& area, const Theme& theme, const MapScene& scene,
                 std::int64_t query, std::int64_t key, QString text);

}  // namespace kvatlas::viewer
