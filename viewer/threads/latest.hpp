// SPDX-License-Identifier: Apache-2.0
// Computes off the UI thread; the latest request wins.
#pragma once

#include <QObject>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

#include "viewer/threads/mailbox.hpp"

namespace kvatlas::viewer {

/// While one computation runs only the newest request waits. Results come in the order of their
/// requests, those that pile up here are dropped but the newest: so a screen follows a drag whose
/// moves come faster than results.
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
  /// Whether a newer result waits for delivery than that of computation `number`.
  bool overtaken(int number) const;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::function<std::function<void()>()> waiting_;
  bool running_ = false, stop_ = false;
  int finished_ = 0;  // computations
  Mailbox mailbox_;
  std::thread thread_;  // last: it uses the others
};

}  // namespace kvatlas::viewer
