// SPDX-License-Identifier: Apache-2.0
// The dialog that lists the keys of all actions and changes them.
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
