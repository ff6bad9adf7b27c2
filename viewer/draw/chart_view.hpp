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
  void set_chart(const Chart& chart);
  const Chart& chart() const;
  void set_theme(const Theme& theme);

 signals:
  /// While the handle of marks[mark] is dragged; in axis units. `done` at the release.
  void handle_moved(int mark, double value, bool done);
  /// A click or Return on points[series].points[point], lines likewise after points.
  void point_chosen(int series, int point);
  /// A click, Return or arrow on a cell of matrices[matrix].
  void cell_chosen(int matrix, int row, int column);
  /// A click on column x of a chart over layers (bars, boxes).
  void column_chosen(double x);
  /// A range of x was brushed; nothing if the brush was cleared.
  void range_brushed(std::optional<std::pair<double, double>> range);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace kvatlas::viewer
