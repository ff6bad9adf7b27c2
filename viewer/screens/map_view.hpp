// SPDX-License-Identifier: Apache-2.0
// One map in a window, with zoom, pan, a cursor, a focused cell, a rectangle, and a legend whose
// range can be dragged.
#pragma once

#include <QPixmap>
#include <QTimer>
#include <QWidget>
#include <memory>
#include <optional>

#include "viewer/draw/map_scene.hpp"
#include "viewer/maps/region.hpp"
#include "viewer/screens/map_feed.hpp"
#include "viewer/screens/map_readout.hpp"
#include "viewer/screens/screen.hpp"

namespace kvatlas::viewer {

class MapView : public QWidget {
  Q_OBJECT

 public:
  explicit MapView(QWidget* parent = nullptr);

  struct Subject {
    QString title;
    MapSubject map;
    std::optional<MapSubject> less;  // if set, the difference is shown
    /// If set, it is shown right of a line that can be dragged.
    std::optional<MapSubject> swiped;
  };
  /// Shows another map. The part in sight stays if the prompt is as long, and the range if it is
  /// locked.
  void set_subject(const Subject& subject);
  /// Shows the cells alone, for a small view beside others.
  void set_bare();
  /// Takes part in the one cursor of all maps, which goes by token, or by relative position in
  /// prompts of other length.
  void share_cursor(MapCursor& cursor);
  void set_theme(const Theme& theme);
  void set_tokens(TokenList tokens);
  void set_scale(ScaleKind kind, bool per_row, std::int64_t masked_keys);
  void set_locked(bool locked);
  /// Takes over the range of the map beside it; with none it has one of its own again.
  void share_range(const std::optional<Range>& range);
  struct Overlays {
    std::optional<std::pair<std::int64_t, std::int64_t>> window, partitions;
    std::vector<KeptLane> lanes;
    bool token_texts = true;
  };
  void set_overlays(Overlays overlays);

  bool act(Act act);
  const Viewport& viewport() const { return scene_.viewport; }
  void set_viewport(const Viewport& viewport);
  void show_all();
  /// Shows as much of the map as there is room for.
  void show_part(const TokenRectangle& part);
  /// Focuses a pair of tokens (-1 for none) and scrolls there if it is out of sight.
  void set_focus_cell(std::int64_t query, std::int64_t key);
  std::int64_t focus_query() const { return query_; }
  std::int64_t focus_key() const { return key_; }
  void set_region(const std::optional<TokenRectangle>& region);
  /// Statistics of the region; none without a region or while its tiles are missing.
  std::optional<RegionStatistics> region_statistics_here() const;
  QString region_text() const;
  QString region_csv() const;
  /// Shows the cursor of the other pane here.
  void set_hover(std::int64_t query, std::int64_t key);

  QString focus_text() const;
  PicturePtr picture() const;
  /// The keys of the focused row that are in sight, or the greatest cells in sight.
  Table table() const;
  std::int64_t n_tokens() const { return feed_.n_tokens(); }
  const QuantisedMap& map() const { return *map_; }
  const QString& problem() const { return feed_.problem(); }
  QString failure() const { return feed_.failure(scene_.viewport); }
  bool is_relative() const { return feed_.is_relative(); }
  MapLayout layout_now() const;

 signals:
  void focus_changed(qint64 query, qint64 key);
  void region_changed();
  void hovered(qint64 query, qint64 key);  // -1 when the pointer has left
  void viewport_changed();
  void range_changed();
  void content_changed();  // something else is painted

 protected:
  void paintEvent(QPaintEvent* event) override;
  void resizeEvent(QResizeEvent* event) override;
  void showEvent(QShowEvent* event) override;
  void hideEvent(QHideEvent* event) override;
  void wheelEvent(QWheelEvent* event) override;
  void mousePressEvent(QMouseEvent* event) override;
  void mouseMoveEvent(QMouseEvent* event) override;
  void mouseReleaseEvent(QMouseEvent* event) override;
  void mouseDoubleClickEvent(QMouseEvent* event) override;
  void leaveEvent(QEvent* event) override;
  void focusInEvent(QFocusEvent* event) override;
  void focusOutEvent(QFocusEvent* event) override;

 private:
  enum class Drag : std::uint8_t { none, pan, region, low, high, swipe };

  void view_moved();  // other tiles are in sight
  void want_other();
  void tiles_came();
  void rescale();
  void repaint_all();
  void limit(Viewport& viewport) const;
  void zoom(double factor, QPointF about);
  void pan(double right, double down);
  void move_focus(std::int64_t down, std::int64_t right);
  void make_visible(std::int64_t query, std::int64_t key);
  std::int64_t block_here() const;
  std::pair<std::int64_t, std::int64_t> token_at(QPointF position) const;
  std::optional<TokenRectangle> cell_at(std::int64_t query, std::int64_t key) const;
  MapReadout readout() const { return MapReadout(scene_); }
  void toggle_added(std::int64_t query, std::int64_t key);
  void drag_range(double y);

  Theme theme_;
  MapFeed feed_, swiped_feed_;
  MapFeed other_feed_;  // tiles of the other reduction, needed while there is a rectangle
  std::shared_ptr<QuantisedMap> map_, swiped_map_;
  MapScene scene_;
  ScaleSettings settings_;
  bool locked_ = false, rectangle_next_ = false, fitted_ = true;
  std::int64_t query_ = -1, key_ = -1;  // the focused pair of tokens
  std::int64_t hover_query_ = -1, hover_key_ = -1;
  std::vector<std::pair<std::int64_t, std::int64_t>> added_;
  Drag drag_ = Drag::none;
  QPointF pressed_, last_;
  bool moved_ = false;
  QPixmap base_;  // everything but what follows the pointer
  QTimer rescale_soon_;
};

}  // namespace kvatlas::viewer
