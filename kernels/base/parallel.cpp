// SPDX-License-Identifier: Apache-2.0
#include "kernels/base/parallel.hpp"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <sched.h>
#include <thread>
#include <vector>

namespace kvatlas {
namespace {

int usable_cores() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

thread_local bool inside_task = false;

/// Workers that sleep between calls. One call runs at a time; further callers wait their turn.
class Pool {
 public:
  explicit Pool(int threads) {
    for (int worker = 1; worker < threads; ++worker)
      workers_.emplace_back([this, worker] { serve(worker); });
  }

  ~Pool() {
    {
      std::lock_guard lock(mutex_);
      closing_ = true;
    }
    start_.notify_all();
    for (auto& thread : workers_) thread.join();
  }

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  void run(std::int64_t tasks, const std::function<void(std::int64_t, int)>& body) {
    std::lock_guard turn(turn_);
    {
      std::lock_guard lock(mutex_);
      body_ = &body;
      tasks_ = tasks;
      next_.store(0, std::memory_order_relaxed);
      failure_ = nullptr;
      busy_ = static_cast<int>(workers_.size());
      ++round_;
    }
    start_.notify_all();
    work(0);
    std::unique_lock lock(mutex_);
    done_.wait(lock, [this] { return busy_ == 0; });
    body_ = nullptr;
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  void serve(int worker) {
    std::uint64_t seen = 0;
    for (;;) {
      {
        std::unique_lock lock(mutex_);
        start_.wait(lock, [&] { return closing_ || round_ != seen; });
        if (closing_) return;
        seen = round_;
      }
      work(worker);
      std::lock_guard lock(mutex_);
      if (--busy_ == 0) done_.notify_one();
    }
  }

  void work(int worker) {
    inside_task = true;
    for (std::int64_t task; (task = next_.fetch_add(1)) < tasks_;) {
      try {
        (*body_)(task, worker);
      } catch (...) {
        std::lock_guard lock(mutex_);
        if (!failure_) failure_ = std::current_exception();
        next_.store(tasks_);
      }
    }
    inside_task = false;
  }

  std::mutex turn_, mutex_;
  std::condition_variable start_, done_;
  std::vector<std::thread> workers_;
  const std::function<void(std::int64_t, int)>* body_ = nullptr;
  std::int64_t tasks_ = 0;
  std::atomic<std::int64_t> next_{0};
  std::exception_ptr failure_;
  std::uint64_t round_ = 0;
  int busy_ = 0;
  bool closing_ = false;
};

std::unique_ptr<Pool>& pool() {
  static std::unique_ptr<Pool> instance = std::make_unique<Pool>(usable_cores());
  return instance;
}

}  // namespace

int thread_count() { return pool()->threads(); }

void set_thread_count(int threads) {
  threads = std::max(1, threads);
  if (threads != thread_count()) pool() = std::make_unique<Pool>(threads);
}

void parallel_for(std::int64_t tasks, const std::function<void(std::int64_t, int)>& body) {
  if (tasks <= 0) return;
  if (inside_task || tasks == 1 || thread_count() == 1) {
    for (std::int64_t task = 0; task < tasks; ++task) body(task, 0);
    return;
  }
  pool()->run(tasks, body);
}

}  // namespace kvatlas
