// SPDX-License-Identifier: Apache-2.0
// The page that is shown while nothing is open: it says how to begin, and lists recent files.
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
