// SPDX-License-Identifier: Apache-2.0
// The sheet of all keys, made from the table of actions; they can be changed there.
#pragma once

#include <QDialog>

#include "viewer/frame/actions.hpp"

class QKeySequenceEdit;
class QLabel;
class QTreeWidget;

namespace kvatlas::viewer {

class KeysDialog : public QDialog {
  Q_OBJECT

 public:
  KeysDialog(Actions& actions, QWidget* parent);

 private:
  QAction* chosen() const;
  void refresh();
  void change(const QList<QKeySequence>& keys);

  Actions& actions_;
  QTreeWidget* tree_;
  QKeySequenceEdit* edit_;
  QLabel* problem_;
};

}  // namespace kvatlas::viewer
