// SPDX-License-Identifier: Apache-2.0
// The table behind the view in front: what a screen reader walks and what is copied as CSV.
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

  /// Follows this screen; nullptr: none. Its table is asked for while this is visible alone.
  void set_screen(Screen* screen);
  /// As the rows are sorted now.
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
