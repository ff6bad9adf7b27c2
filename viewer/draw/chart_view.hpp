// SPDX-License-Identifier: Apache-2.0
// A chart in a window: what chart_picture() draws, with hovering, handles to drag and a focus that
// the keyboard moves.
#pragma once

#include <QWidget>
#include <memory>
#include <optional>

#include "viewer/draw/theme.hpp"
#include "viewer/models/chart.hpp"

namespace kvatlas::viewer {

class ChartView : public QWidget {
  Q_OBJECT

 public:
  explicit ChartView(QWidget* parent = nullptr);
  ~ChartView() override;

  /// Replaces what is shown; keeps hover and focus where series stay the same. Cheap enough for
  /// every move of a handle.
  void set_chart(Chart chart);
  const Chart& chart() const;
  void set_theme(const Theme& theme);
  /// Whether dragging across the plot brushes a range of x.
  void set_brushing(bool on);

  /// What is under the mouse, and what the keyboard is at; empty: nothing.
  QString hover_text() const;
  QString focus_text() const;
  /// Where a handle can be taken hold of, in the widget; (0, 0) if it cannot be seen.
  QPoint handle_place(Handle handle) const;
  /// The middle of a point or a cell, likewise.
  QPoint point_place(int series, int point) const;
  QPoint cell_place(int matrix, int row, int column) const;

  QSize sizeHint() const override;
  QSize minimumSizeHint() const override;

 signals:
  /// The mark of this handle was dragged to a value of its axis; `done`: and released there.
  void handle_moved(kvatlas::viewer::Handle handle, double value, bool done);
  /// A click or Return on points[series].points[point], lines likewise after points.
  void point_chosen(int series, int point);
  /// A click, Return or arrow on a cell of matrices[matrix].
  void cell_chosen(int matrix, int row, int column);
  /// The pointer came to a cell; -1: to no cell any more.
  void cell_hovered(int matrix, int row, int column);
  /// A click or Return on column x of a chart over layers (bars, boxes).
  void column_chosen(double x);
  /// A range of x was brushed.
  void range_brushed(double first, double last);

 protected:
  bool event(QEvent* event) override;
  void paintEvent(QPaintEvent* event) override;
  void resizeEvent(QResizeEvent* event) override;
  void mousePressEvent(QMouseEvent* event) override;
  void mouseMoveEvent(QMouseEvent* event) override;
  void mouseReleaseEvent(QMouseEvent* event) override;
  void leaveEvent(QEvent* event) override;
  void keyPressEvent(QKeyEvent* event) override;
  void focusInEvent(QFocusEvent* event) override;
  void focusOutEvent(QFocusEvent* event) override;

 private:
  struct State;
  void paint_anew();
  void set_hover(const QPoint& at);
  void move_focus(int columns, int rows);
  void move_cell(int columns, int rows);
  void choose_focused();
  void announce();

  std::unique_ptr<State> state_;
};

}  // namespace kvatlas::viewer
