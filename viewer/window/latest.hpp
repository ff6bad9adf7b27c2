// SPDX-License-Identifier: Apache-2.0
// Computes off the UI thread; the latest request wins.
#pragma once

#include <QObject>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

namespace kvatlas::viewer {

/// While one computation runs only the newest request waits; a result that was overtaken by
/// a newer one's is dropped.
class Latest : public QObject {
  Q_OBJECT

 public:
  explicit Latest(QObject* parent = nullptr);
  /// Waits for the computation under way, whose result is dropped.
  ~Latest() override;

  /// `compute` runs in a thread, and what it returns runs here. An exception ends in failed().
  void request(std::function<std::function<void()>()> compute);
  bool busy() const;

 signals:
  void failed(const QString& message);
  void idle();  // nothing runs or waits any more

 private:
  void run();

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::function<std::function<void()>()> waiting_;
  bool running_ = false, stop_ = false;
  std::thread thread_;  // last: it uses the others
};

}  // namespace kvatlas::viewer
