// SPDX-License-Identifier: Apache-2.0
// A tree of the model's layers and heads, and of the profile's samples by task.
#pragma once

#include <QWidget>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "viewer/screens/session.hpp"

class QLineEdit;
class QTreeWidget;
class QTreeWidgetItem;

namespace kvatlas::viewer {

class ModelTree : public QWidget {
  Q_OBJECT

 public:
  ModelTree(Session& session, QWidget* parent);

  /// Shows a word such as "lazy" beside each layer for which it holds.
  void set_predicates(const std::vector<std::pair<std::string, std::vector<std::int64_t>>>& all);

 private:
  enum class Kind : int { none, layer, head, all_samples, task, sample };
  QTreeWidgetItem* add(QTreeWidgetItem* parent, Kind kind, const QString& text, qint64 a = 0,
                       qint64 b = 0);
  void rebuild();
  void filter(const QString& text);
  void chosen(QTreeWidgetItem* item);
  void follow_selection();

  Session& session_;
  QLineEdit* find_;
  QTreeWidget* tree_;
  QTreeWidgetItem *model_ = nullptr, *samples_ = nullptr;
  std::vector<QTreeWidgetItem*> layers_, sample_items_;
};

}  // namespace kvatlas::viewer
