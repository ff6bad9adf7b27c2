// SPDX-License-Identifier: Apache-2.0
// A widget that shows a chart as chart_picture() draws it. The mouse reads values, drags handles
// and chooses parts; the keyboard moves a focus between the parts.
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

  /// Shows another chart. The focus stays where it is if the chart has as many series as before.
  /// This is quick enough to be called for every move of a handle.
  void set_chart(Chart chart);
  const Chart& chart() const;
  void set_theme(const Theme& theme);
  /// Sets whether dragging across the plot chooses a range of x.
  void set_brushing(bool on);
  /// Gives two charts of the same size the same frame and ranges, so that they can be compared by
  /// eye; each has its own again after stand_alone().
  static void line_up(ChartView& one, ChartView& other);
  void stand_alone();

  /// The part under the mouse and the part in focus, in words; empty if there is none.
  QString hover_text() const;
  QString focus_text() const;
  /// Where a handle can be taken hold of, in the widget; (0, 0) if it cannot be seen.
  QPoint handle_place(Handle handle) const;
  /// The middle of a point or a cell, in the widget.
  QPoint point_place(int series, int point) const;
  QPoint cell_place(int matrix, int row, int column) const;

  QSize sizeHint() const override;
  /// Less would leave the plot too little room beside its texts.
  QSize minimumSizeHint() const override;

 signals:
  /// The mark of this handle was dragged to a value of its axis; `done`: and released there.
  void handle_moved(kvatlas::viewer::Handle handle, double value, bool done);
  /// A click or Return on points[series].points[point]. Lines are numbered after all points.
  void point_chosen(int series, int point);
  /// A click, Return or arrow on a cell of matrices[matrix].
  void cell_chosen(int matrix, int row, int column);
  /// The mouse came to a cell; -1 if it has left the cells.
  void cell_hovered(int matrix, int row, int column);
  /// A click or Return on the column at x of a chart with bars or boxes.
  void column_chosen(double x);
  /// A range of x was chosen by dragging across the plot.
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
