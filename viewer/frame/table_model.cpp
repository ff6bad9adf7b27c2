// SPDX-License-Identifier: Apache-2.0
#include "viewer/frame/table_model.hpp"

#include <utility>

namespace kvatlas::viewer {

void TableModel::set_table(Table table) {
  beginResetModel();
  table_ = std::move(table);
  texts_.clear();
  for (std::size_t column = 0; column < table_.columns.size(); ++column)
    texts_.emplace_back(table_, column);
  endResetModel();
}

int TableModel::rowCount(const QModelIndex& parent) const {
  return parent.isValid() ? 0 : static_cast<int>(table_.rows.size());
}

int TableModel::columnCount(const QModelIndex& parent) const {
  return parent.isValid() ? 0 : static_cast<int>(table_.columns.size());
}

QVariant TableModel::data(const QModelIndex& index, int role) const {
  if (!checkIndex(index, CheckIndexOption::IndexIsValid)) return {};
  const auto& row = table_.rows[index.row()];
  const auto column = static_cast<std::size_t>(index.column());
  if (column >= row.size()) return {};  // a short row
  const auto& cell = row[column];
  if (role == Qt::TextAlignmentRole)
    return QVariant::fromValue(Qt::AlignVCenter | (cell.is_text ? Qt::AlignLeft : Qt::AlignRight));
  if (role == Qt::DisplayRole) return QString::fromStdString(texts_[column].of(cell));
  if (role == Qt::ToolTipRole)
    return QString::fromStdString(cell.is_text ? cell.text : exact_text(cell.number))
        .toHtmlEscaped();
  if (role == kValueRole)
    return cell.is_text ? QVariant(QString::fromStdString(cell.text)) : QVariant(cell.number);
  return {};
}

QVariant TableModel::headerData(int section, Qt::Orientation orientation, int role) const {
  if (role != Qt::DisplayRole) return {};
  if (orientation == Qt::Vertical) return section + 1;
  if (section < 0 || section >= columnCount()) return {};
  return QString::fromStdString(shown_title(table_.columns[section]));
}

}  // namespace kvatlas::viewer
