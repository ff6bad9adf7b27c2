// SPDX-License-Identifier: Apache-2.0
// Shows the name of the work that is going on, as soon as it takes noticeably long, with a button
// that cancels it.
#pragma once

#include <QTimer>
#include <QWidget>
#include <functional>
#include <vector>

class QLabel;
class QProgressBar;
class QPushButton;

namespace kvatlas::viewer {

class JobsBar : public QWidget {
  Q_OBJECT

 public:
  explicit JobsBar(QWidget* parent, int patience_ms = 300);

  /// Adds a job and returns its number. `cancel` may be empty: then it cannot be cancelled.
  int begin(const QString& name, std::function<void()> cancel);
  void rename(int job, const QString& name);
  void end(int job);
  void end(const QString& name);  // ends the oldest job of that name
  int count() const { return static_cast<int>(jobs_.size()); }

 private:
  struct Job {
    int number;
    QString name;
    std::function<void()> cancel;
  };
  void refresh();

  std::vector<Job> jobs_;
  int next_ = 1;
  QTimer patience_;
  QLabel* label_;
  QPushButton* cancel_;
};

}  // namespace kvatlas::viewer
