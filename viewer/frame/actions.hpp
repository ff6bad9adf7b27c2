// SPDX-License-Identifier: Apache-2.0
// All actions of the window in one table: menus, keys, the sheet of keys, the command palette and
// the tests are made from it.
#pragma once

#include <QAction>
#include <QKeySequence>
#include <QList>
#include <QObject>
#include <QString>
#include <map>
#include <optional>
#include <vector>

#include "viewer/screens/screen.hpp"

class QSettings;

namespace kvatlas::viewer {

struct ActionEntry {
  const char* id;               // "go.jump": the menu's name, a dot, and a name within the menu
  const char* text;             // marked for translation
  const char* keys;             // portable texts, "; " between; may be empty
  std::optional<Act> act = {};  // what the screen in front is asked for
  bool checkable = false;
};
const std::vector<ActionEntry>& action_table();

/// The actions with the keys that the user has given them.
class Actions : public QObject {
  Q_OBJECT

 public:
  Actions(QSettings& settings, QObject* parent);

  QAction* operator[](const QString& id) const;
  /// In the order of the table.
  const std::vector<QAction*>& all() const { return actions_; }
  const ActionEntry& entry(const QAction* action) const;
  /// The name of its menu ("go"), and the title that the menu has ("Go").
  static QString group_of(const ActionEntry& entry);
  static QString title_of(const QString& group);
  static QString text_of(const ActionEntry& entry);

  static QList<QKeySequence> default_keys(const ActionEntry& entry);
  /// Other keys for an action, kept in the settings; nullptr, or the action that has one of them
  /// already (then nothing is changed).
  QAction* set_keys(QAction* action, const QList<QKeySequence>& keys);
  void reset_keys();
  /// The action that this key is for, whatever has the focus.
  QAction* for_key(const QKeySequence& key) const;

 private:
  void store(const QAction* action);

  QSettings& settings_;
  std::vector<QAction*> actions_;
  std::map<QString, QAction*> by_id_;
};

}  // namespace kvatlas::viewer
