// SPDX-License-Identifier: Apache-2.0
// Pictures as the bytes of a file, for saving and for reports.
#pragma once

#include <string>

#include "viewer/draw/picture.hpp"

namespace kvatlas::viewer {

/// In units; Error(usage) if it has no pixel or too many.
QSizeF picture_size(const Picture& picture, const ImageOptions& options, double scale);
std::string png_bytes(const Picture& picture, const Theme& theme, const ImageOptions& options,
                      const Origin& origin);
std::string png_bytes(QImage image, const std::string& title, const Origin& origin);
/// With at most 256 colours, those that are most frequent or near to them: a third of the bytes.
QImage with_palette(const QImage& image);
std::string svg_bytes(const Picture& picture, const Theme& theme, const ImageOptions& options,
                      const Origin& origin);

}  // namespace kvatlas::viewer
