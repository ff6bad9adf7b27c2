// SPDX-License-Identifier: Apache-2.0
// The bytes of PNG, SVG and PDF files, for saving pictures and for reports.
#pragma once

#include <string>

#include "viewer/draw/picture.hpp"

namespace kvatlas::viewer {

/// The picture's size in pixels of 96 dpi. Throws Error(usage) if it has no device pixel or too
/// many.
QSizeF picture_size(const Picture& picture, const ImageOptions& options, double scale);
std::string png_bytes(const Picture& picture, const Theme& theme, const ImageOptions& options,
                      const Origin& origin);
std::string png_bytes(QImage image, const std::string& title, const Origin& origin);
/// The image with at most 256 colours, the most frequent ones; others become the nearest of these.
/// A file of it has a third of the bytes.
QImage with_palette(const QImage& image);
std::string svg_bytes(const Picture& picture, const Theme& theme, const ImageOptions& options,
                      const Origin& origin);
/// The same bytes for the same picture, whenever they are made.
std::string pdf_bytes(const Picture& picture, const Theme& theme, const ImageOptions& options,
                      const Origin& origin);

}  // namespace kvatlas::viewer
