// SPDX-License-Identifier: Apache-2.0
// Charts with a part of every kind.
#pragma once

#include <string>

#include "viewer/models/chart.hpp"

namespace kvatlas::viewer::testing_gui {

/// Boxes, points, bars, lines, bands and marks over four layers.
inline Chart layers_chart() {
  Chart chart;
  chart.title = "Masses <of> four layers & more";
  chart.notes = {"a note below"};
  chart.x = {"layer", "", {}, {{-0.5, 3.5}}};
  chart.y = {"mass", "share", {}, {{0, 1}}};
  chart.right = Axis{"tokens", "", {}, {{0, 100}}};
  Points samples{"samples", {}, 2};
  for (int layer = 0; layer < 4; ++layer) {
    const double x = layer, y = 0.2 + 0.15 * layer;
    samples.points.push_back({x, y, "sample " + std::to_string(layer), y - 0.1, y + 0.1});
    chart.boxes.push_back({x, y - 0.15, y - 0.05, y, y + 0.05, y + 0.15,
                           layer == 2 ? Emphasis::strong : Emphasis::normal, layer == 3});
  }
  chart.points = {samples};
  chart.bars = {{"rate", {{0, 0.1, "10 %"}, {1, 0.2}, {2, 0.3}, {3, 0.15}}}};
  Line kept{"kept", {{0, 10}, {1, 80}, {2, 40}, {3, 60}}};
  kept.right = true;
  chart.lines = {kept};
  chart.bands = {{"interval", {{0, 0, {}, 0.5, 0.6}, {3, 0, {}, 0.7, 0.9}}}};
  chart.marks = {{"threshold", 0.5, false, Handle::lazy_threshold, Emphasis::strong},
                 {"known", 1.5}};
  chart.table.columns = {{"layer"}, {"mass", "share"}};
  chart.table.rows = {{0.0, 0.25}, {1.0, "a,b"}};
  return chart;
}

/// `count` matrices of `size` layers, blocks of two outlined, a handle on the legend.
inline Chart matrices_chart(int count, int size) {
  Chart chart;
  chart.title = "Alike";
  chart.x = chart.y = {"layer", ""};
  for (int m = 0; m < count; ++m) {
    Matrix matrix{"head " + std::to_string(m), "similarity", {}, {}, {}};
    for (int row = 0; row < size; ++row) {
      matrix.row_labels.push_back(std::to_string(row));
      matrix.column_labels.push_back(std::to_string(row));
      for (int column = 0; column < size; ++column)
        matrix.values.push_back(row == column ? 1 : 0.5 / (1 + (row + column + m) % 7));
      if (row % 2 == 0) matrix.outlines.push_back({row, std::min(row + 1, size - 1)});
    }
    chart.matrices.push_back(matrix);
  }
  chart.marks = {{"delta", 0.5, false, Handle::similarity, Emphasis::strong}};
  return chart;
}

}  // namespace kvatlas::viewer::testing_gui
