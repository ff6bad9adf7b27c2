// SPDX-License-Identifier: Apache-2.0
// What one sees while nothing is open: what to do.
#pragma once

#include <QWidget>

class QVBoxLayout;

namespace kvatlas::viewer {

class StartPage : public QWidget {
  Q_OBJECT

 public:
  explicit StartPage(QWidget* parent);
  void set_recent(const QStringList& files);

 signals:
  void open_wanted();
  void file_wanted(const QString& path);

 private:
  QVBoxLayout* recent_;
};

}  // namespace kvatlas::viewer
