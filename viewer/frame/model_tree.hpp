// SPDX-License-Identifier: Apache-2.0
// The model's layers and heads, and the profile's samples by task.
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

  /// What layers are called for: "lazy" -> those that are.
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
  QLineEdit* search_;
  QTreeWidget* tree_;
  QTreeWidgetItem *model_ = nullptr, *samples_ = nullptr;
  std::vector<QTreeWidgetItem*> layers_, sample_items_;
};

}  // namespace kvatlas::viewer
