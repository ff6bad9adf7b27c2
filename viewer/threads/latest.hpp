// SPDX-License-Identifier: Apache-2.0
// Computes in a thread of its own; of several waiting requests only the latest is computed.
#pragma once

#include <QObject>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

#include "viewer/threads/mailbox.hpp"

namespace kvatlas::viewer {

/// While a computation runs, a new request replaces the one that waits. Results are delivered in
/// the order of their requests; where several are ready, only the newest is delivered. So a screen
/// can follow the mouse even if it moves faster than results are computed.
class Latest : public QObject {
  Q_OBJECT

 public:
  explicit Latest(QObject* parent = nullptr);
  /// Waits for the running computation, and drops its result.
  ~Latest() override;

  /// Runs `compute` in the other thread, and then, in this object's thread, the function that it
  /// returns. If `compute` throws, failed() is emitted instead.
  void request(std::function<std::function<void()>()> compute);
  bool busy() const;

 signals:
  void failed(const QString& message);
  void idle();  // no computation runs or waits any more

 private:
  void run();
  /// Whether a result newer than that of computation `number` waits to be delivered.
  bool overtaken(int number) const;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::function<std::function<void()>()> waiting_;
  bool running_ = false, stop_ = false;
  int finished_ = 0;  // number of computations that have ended
  Mailbox mailbox_;
  std::thread thread_;  // the last member, for it uses the others
};

}  // namespace kvatlas::viewer
