// SPDX-License-Identifier: Apache-2.0
// A prompt as running text: its tokens in lines, each with its shade behind it.
#pragma once

#include <QFont>
#include <QPointF>
#include <QRectF>
#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "viewer/draw/picture.hpp"
#include "viewer/models/shown_text.hpp"

namespace kvatlas::viewer {

class TextFlow {
 public:
  void set(ShownText text, const QFont& font, double width);
  void set_width(double width);
  const ShownText& text() const { return text_; }
  double height() const;
  double line_height() const { return line_height_; }

  /// The token at a place, which is measured from the text's corner.
  std::optional<std::size_t> token_at(const QPointF& place) const;
  QRectF area_of(std::size_t token) const;

  struct Marks {
    std::optional<std::size_t> chosen;                       // outlined
    std::vector<std::pair<std::size_t, std::size_t>> found;  // likewise: first, one past the last
  };
  /// Paints the lines that lie in `part`, which is measured from the text's corner.
  void paint(QPainter& painter, const QRectF& part, const Theme& theme, const Marks& marks) const;

 private:
  void lay_out();
  /// Whether a line may begin with this token: a word is not cut unless it is longer than a line.
  bool begins_word(std::size_t token) const;

  ShownText text_;
  QFont font_;
  double width_ = 0, line_height_ = 0, ascent_ = 0;
  std::vector<double> widths_;      // [token]
  std::vector<double> left_;        // [token]
  std::vector<std::size_t> lines_;  // [line]: its first token
};

/// What the shades stand for, at the right end of `area`. Returns how wide that is.
double paint_shades(QPainter& painter, const QRectF& area, const ShownText& text,
                    const Theme& theme);

/// The text as a picture, up to a height of 20000 pixels; its CSV has a row a token.
PicturePtr text_picture(ShownText text);

}  // namespace kvatlas::viewer
