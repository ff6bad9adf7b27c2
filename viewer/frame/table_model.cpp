// SPDX-License-Identifier: Apache-2.0
#include "viewer/frame/table_model.hpp"

#include <cmath>
#include <utility>

namespace kvatlas::viewer {

namespace {

QString number_words(double number) {
  if (std::isnan(number)) return QStringLiteral("-");
  return QString::number(number, 'g', 6);
}

}  // namespace

void TableModel::set_table(Table table) {
  beginResetModel();
  table_ = std::move(table);
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
  if (role == Qt::DisplayRole)
    return cell.is_text ? QString::fromStdString(cell.text) : number_words(cell.number);
  if (role == kValueRole)
    return cell.is_text ? QVariant(QString::fromStdString(cell.text)) : QVariant(cell.number);
  return {};
}

QVariant TableModel::headerData(int section, Qt::Orientation orientation, int role) const {
  if (role != Qt::DisplayRole) return {};
  if (orientation == Qt::Vertical) return section + 1;
  if (section < 0 || section >= columnCount()) return {};
  const auto& column = table_.columns[section];
  auto text = QString::fromStdString(column.title);
  if (!column.unit.empty())
    text += QStringLiteral(" [%1]").arg(QString::fromStdString(column.unit));
  return text;
}

}  // namespace kvatlas::viewer
