// SPDX-License-Identifier: Apache-2.0
// All heads of a model as thumbnails; reads those in sight and a ring around them.
#pragma once

#include <QAbstractScrollArea>
#include <QPixmap>
#include <QPointer>
#include <QTimer>
#include <optional>
#include <unordered_map>
#include <vector>

#include "viewer/draw/theme.hpp"
#include "viewer/maps/scale.hpp"
#include "viewer/maps/tiles.hpp"
#include "viewer/window/screen.hpp"

namespace kvatlas::viewer {

/// What the present choices make of a layer; the strip at the left shows it.
struct LayerNote {
  std::optional<bool> lazy;
  std::int64_t budget = -1;  // tokens; -1: not known
  std::string blocks;        // "4/9": so many of its heads begin a block of PoD
};

class HeadGrid : public QAbstractScrollArea {
  Q_OBJECT

 public:
  explicit HeadGrid(QWidget* parent = nullptr);

  /// The maps of a sample; nullptr: none. Keeps place and order for the same profile.
  void set_maps(OpenedProfile* profile, std::size_t sample, Reduction reduction);
  /// In this order, one after the other; with a number each. Empty: layers by heads.
  struct Place {
    std::int64_t layer = 0, head = 0;
    double number = 0;
  };
  void set_order(std::vector<Place> order);
  void set_notes(std::vector<LayerNote> notes);
  void set_scale(ScaleKind kind, bool each_its_own);
  void set_theme(const Theme& theme);
  void set_thumbnail_size(int pixels);
  int thumbnail_size() const { return size_; }

  void choose(std::int64_t layer, std::int64_t head);
  std::int64_t layer() const { return layer_; }
  std::int64_t head() const { return head_; }
  bool act(Act act);
  /// Thumbnails in sight, by place from the left and the top.
  std::vector<std::pair<std::int64_t, std::int64_t>> in_sight() const;
  bool is_loaded() const;  // all of them
  QString failure() const { return failure_; }
  const std::optional<Range>& range() const { return range_; }
  /// All of the grid on one picture, as far as it is read.
  PicturePtr picture() const;

 signals:
  void chosen(qint64 layer, qint64 head);
  void entered(qint64 layer, qint64 head);

 protected:
  void paintEvent(QPaintEvent* event) override;
  void resizeEvent(QResizeEvent* event) override;
  void scrollContentsBy(int dx, int dy) override;
  void mousePressEvent(QMouseEvent* event) override;
  void mouseDoubleClickEvent(QMouseEvent* event) override;
  bool viewportEvent(QEvent* event) override;

 private:
  int columns() const;
  int rows() const;
  QSize cell() const;
  std::optional<Place> place_at(int row, int column) const;
  std::pair<int, int> cell_of(std::int64_t layer, std::int64_t head) const;
  std::optional<std::pair<int, int>> cell_under(QPoint position) const;
  QRect cell_rectangle(int row, int column) const;
  void lay_out();
  void want();
  void tile_came(const TileKey& key, const QString& failure);
  TileKey key_of(std::int64_t layer, std::int64_t head) const;
  bool find_range();
  const QPixmap* thumbnail(std::int64_t layer, std::int64_t head, double ratio);
  QString about(const Place& place) const;
  void paint_header(QPainter& painter);
  void paint_strip(QPainter& painter);
  void paint_legend(QPainter& painter);

  QPointer<OpenedProfile> profile_;
  std::size_t sample_ = 0;
  Reduction reduction_ = Reduction::mean;
  int level_ = -1;  // of the thumbnails
  std::vector<Place> order_;
  std::vector<LayerNote> notes_;
  Theme theme_;
  int size_ = 64;
  ScaleKind kind_ = ScaleKind::log;
  bool each_its_own_ = false;
  std::optional<Range> range_;  // one for all
  std::int64_t layer_ = 0, head_ = 0;
  std::unordered_map<TileKey, QPixmap, TileKeyHash> thumbnails_;
  double ratio_ = 1;  // device pixels that they were made for
  std::unordered_map<TileKey, QString, TileKeyHash> failures_;
  QString failure_;
};

}  // namespace kvatlas::viewer
