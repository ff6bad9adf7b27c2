// SPDX-License-Identifier: Apache-2.0
// All heads of a model as thumbnails. Only those in sight and those directly around them are read.
#pragma once

#include <QAbstractScrollArea>
#include <optional>
#include <vector>

#include "viewer/models/layer_decisions.hpp"
#include "viewer/screens/grid_layout.hpp"
#include "viewer/screens/screen.hpp"
#include "viewer/screens/thumbnails.hpp"

namespace kvatlas::viewer {

class HeadGrid : public QAbstractScrollArea {
  Q_OBJECT

 public:
  explicit HeadGrid(QWidget* parent = nullptr);

  /// Shows the maps of a sample, or none for nullptr. Place and order stay as they are for the same
  /// profile.
  void set_maps(OpenedProfile* profile, std::size_t sample, Reduction reduction);
  /// Shows the heads in this order with their numbers; layers by heads if it is empty.
  using Place = GridLayout::Place;
  void set_order(std::vector<Place> order);
  /// Shows how the thumbnails differ from those of the baseline; for nullptr shows them as they
  /// are.
  void set_baseline(OpenedProfile* baseline);
  const std::optional<Range>& range() const { return thumbnails_.range(); }
  bool is_difference() const { return thumbnails_.is_difference(); }
  /// Hides all other heads (GridLayout::set_shown).
  void set_shown(std::vector<std::uint8_t> shown);
  std::int64_t shown_count() const { return layout_.shown_count(); }
  bool is_shown(std::int64_t layer, std::int64_t head) const {
    return layout_.is_shown(layer, head);
  }
  /// What the strip to the left of layers by heads shows.
  void set_decisions(std::vector<LayerDecision> decisions);
  void set_scale(ScaleKind kind, bool each_its_own);
  void set_theme(const Theme& theme);
  void set_thumbnail_size(int pixels);
  int thumbnail_size() const { return layout_.size(); }

  void choose(std::int64_t layer, std::int64_t head);
  std::int64_t layer() const { return layer_; }
  std::int64_t head() const { return head_; }
  bool act(Act act);
  /// The thumbnails in sight, from the left and the top.
  std::vector<Thumbnails::Head> in_sight() const;
  /// Whether all thumbnails in sight are there.
  bool is_loaded() const { return thumbnails_.is_loaded(in_sight()); }
  /// One picture of all heads that are shown, as far as they are read. `filter` is the text that
  /// chose them.
  PicturePtr picture(const std::string& filter) const;

 signals:
  void chosen(qint64 layer, qint64 head);
  void entered(qint64 layer, qint64 head);

 protected:
  void paintEvent(QPaintEvent* event) override;
  void resizeEvent(QResizeEvent* event) override;
  void showEvent(QShowEvent* event) override;
  void hideEvent(QHideEvent* event) override;
  void scrollContentsBy(int dx, int dy) override;
  void mousePressEvent(QMouseEvent* event) override;
  void mouseDoubleClickEvent(QMouseEvent* event) override;
  bool viewportEvent(QEvent* event) override;

 private:
  void lay_out();
  void fit_size();
  void reveal();  // scrolls to the chosen head
  void set_size(int pixels);
  void want();
  void scrolled();
  std::vector<Thumbnails::Head> heads_at(const std::vector<GridLayout::Cell>& cells) const;
  QString about(const Place& place) const;
  void paint_thumbnail(QPainter& painter, const GridLayout::Cell& cell, double ratio);
  void paint_header(QPainter& painter);
  void paint_strip(QPainter& painter);
  void paint_legend(QPainter& painter);

  Thumbnails thumbnails_;
  GridLayout layout_;
  bool size_is_chosen_ = false;  // the user has chosen the size
  std::vector<LayerDecision> decisions_;
  Theme theme_;
  std::int64_t layer_ = 0, head_ = 0;
};

}  // namespace kvatlas::viewer
