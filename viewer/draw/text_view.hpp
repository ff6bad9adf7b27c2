// SPDX-License-Identifier: Apache-2.0
// A widget that shows a prompt as text. It lays out all of it, and paints the lines in sight.
#pragma once

#include <QAbstractScrollArea>
#include <optional>

#include "viewer/draw/text_flow.hpp"

namespace kvatlas::viewer {

class TextView : public QAbstractScrollArea {
  Q_OBJECT

 public:
  explicit TextView(QWidget* parent = nullptr);

  /// Shows another text; it stays scrolled where it is.
  void set_text(ShownText text);
  const ShownText& text() const { return flow_.text(); }
  void set_theme(const Theme& theme);
  /// Outlines a token, and scrolls to it if it is out of sight.
  void choose(std::optional<std::size_t> token);
  std::optional<std::size_t> chosen() const { return marks_.chosen; }
  /// Outlines what was found.
  void set_found(std::vector<std::pair<std::size_t, std::size_t>> places);
  /// The middle of a token, in the viewport.
  QPoint place_of(std::size_t token) const;

 signals:
  /// A click on a token.
  void token_chosen(std::size_t token);

 protected:
  bool viewportEvent(QEvent* event) override;
  void paintEvent(QPaintEvent* event) override;
  void resizeEvent(QResizeEvent* event) override;
  void mousePressEvent(QMouseEvent* event) override;

 private:
  QPointF in_text(const QPointF& place) const;
  double text_width() const;
  void fit_scroll_bar();

  TextFlow flow_;
  TextFlow::Marks marks_;
  Theme theme_;
};

}  // namespace kvatlas::viewer
