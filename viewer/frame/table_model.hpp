// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <QAbstractTableModel>

#include "viewer/models/chart.hpp"

namespace kvatlas::viewer {

/// A table of numbers and words, sorted by what the cells are, not by how they are written.
class TableModel : public QAbstractTableModel {
  Q_OBJECT

 public:
  /// The cell as what it is: a double or a QString.
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
};

}  // namespace kvatlas::viewer
