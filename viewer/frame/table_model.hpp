// SPDX-License-Identifier: Apache-2.0
// Makes a chart's table available to Qt's views.
#pragma once

#include <QAbstractTableModel>
#include <vector>

#include "base/table.hpp"

namespace kvatlas::viewer {

/// A table of numbers and words. Views sort it by the numbers themselves, not by their texts, and
/// tell a number's digits in full where the mouse rests on it.
class TableModel : public QAbstractTableModel {
  Q_OBJECT

 public:
  /// The role under which a cell gives its value, a double or a QString.
  static constexpr int kValueRole = Qt::UserRole;

  using QAbstractTableModel::QAbstractTableModel;
  void set_table(Table table);
  const Table& table() const { return table_; }

  int rowCount(const QModelIndex& parent = {}) const override;
  int columnCount(const QModelIndex& parent = {}) const override;
  QVariant data(const QModelIndex& index, int role) const override;
  QVariant headerData(int section, Qt::Orientation orientation, int role) const override;

 private:
  Table table_;
  std::vector<ColumnText> texts_;  // one for each column
};

}  // namespace kvatlas::viewer
