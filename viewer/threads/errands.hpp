// SPDX-License-Identifier: Apache-2.0
// Work off the window's thread, one piece after the other.
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
  /// Waits until all work is done.
  ~Errands();
  Errands(const Errands&) = delete;
  Errands& operator=(const Errands&) = delete;

  /// `work` throws nothing.
  void start(std::function<void()> work);

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> waiting_;
  bool ending_ = false;
  std::thread thread_;  // from the first piece of work on
};

}  // namespace kvatlas::viewer
