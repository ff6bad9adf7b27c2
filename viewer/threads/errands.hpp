// SPDX-License-Identifier: Apache-2.0
// Runs pieces of work in a thread of its own, one after the other.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace kvatlas::viewer {

class Errands {
 public:
  Errands() = default;
  /// Waits until all work that was started is done.
  ~Errands();
  Errands(const Errands&) = delete;
  Errands& operator=(const Errands&) = delete;

  /// Runs `work`, which must not throw, after all work that was started before.
  void start(std::function<void()> work);

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> waiting_;
  bool ending_ = false;
  std::thread thread_;  // runs from the first start() on
};

}  // namespace kvatlas::viewer
