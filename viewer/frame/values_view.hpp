// SPDX-License-Identifier: Apache-2.0
// Shows the numbers of the screen in front as a table, for screen readers and for copying as CSV.
#pragma once

#include <QPointer>
#include <QTimer>
#include <QWidget>

#include "viewer/frame/table_model.hpp"
#include "viewer/screens/screen.hpp"

class QLabel;
class QPushButton;
class QSortFilterProxyModel;
class QTableView;

namespace kvatlas::viewer {

class ValuesView : public QWidget {
  Q_OBJECT

 public:
  explicit ValuesView(QWidget* parent);

  /// Shows the table of this screen from now on; nullptr: an empty table. The screen is asked for
  /// its table only while this view is visible.
  void set_screen(Screen* screen);
  /// The table as CSV, its rows in the order in which they are shown.
  QString csv() const;
  QTableView& view() const { return *view_; }

 protected:
  void showEvent(QShowEvent* event) override;

 private:
  void refresh();

  QPointer<Screen> screen_;
  QTimer soon_;
  TableModel* model_;
  QSortFilterProxyModel* sorted_;
  QTableView* view_;
  QLabel* label_;
  QPushButton* copy_;
};

}  // namespace kvatlas::viewer
