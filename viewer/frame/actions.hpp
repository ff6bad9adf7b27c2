// SPDX-License-Identifier: Apache-2.0
// The table of all actions of the window. The menus, the keys, the dialog that lists the keys, the
// command palette and the tests are made from it.
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
  const char* text;             // in menus, in English; marked for translation
  const char* keys;             // as QKeySequence names them, "; " between several
  std::optional<Act> act = {};  // what it asks of the screen in front; none: the window does it
  bool checkable = false;       // it can be on or off
};
const std::vector<ActionEntry>& action_table();

/// The actions, with the keys that the user has given them.
class Actions : public QObject {
  Q_OBJECT

 public:
  Actions(QSettings& settings, QObject* parent);

  QAction* operator[](const QString& id) const;
  /// All actions, in the order of the table.
  const std::vector<QAction*>& all() const { return actions_; }
  const ActionEntry& entry(const QAction* action) const;
  /// The name of its menu ("go"), and the title that the menu has ("Go").
  static QString group_of(const ActionEntry& entry);
  static QString title_of(const QString& group);
  static QString text_of(const ActionEntry& entry);

  static QList<QKeySequence> default_keys(const ActionEntry& entry);
  /// Gives an action other keys and keeps them in the settings. If another action has one of the
  /// keys already, nothing is changed and that action is returned; otherwise nullptr.
  QAction* set_keys(QAction* action, const QList<QKeySequence>& keys);
  void reset_keys();
  /// The action that has this key; nullptr if none has it.
  QAction* for_key(const QKeySequence& key) const;

 private:
  void store(const QAction* action);

  QSettings& settings_;
  std::vector<QAction*> actions_;
  std::map<QString, QAction*> by_id_;
};

}  // namespace kvatlas::viewer
