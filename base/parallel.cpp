// SPDX-License-Identifier: Apache-2.0
#include "base/parallel.hpp"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <sched.h>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace kvatlas {
namespace {

int usable_cores() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

thread_local bool run_in_place = false;

/// Threads that sleep between calls. One call runs at a time; further callers wait their turn.
class Pool {
 public:
  explicit Pool(int workers) : wanted_(workers) {
    try {
      for (int worker = 1; worker < workers; ++worker)
        threads_.emplace_back([this, worker] { serve(worker); });
    } catch (const std::system_error&) {
      // The system gives no more threads: those that started, and the caller, do the work.
    }
  }

  ~Pool() {
    {
      std::lock_guard lock(mutex_);
      closing_ = true;
    }
    start_.notify_all();
    for (auto& thread : threads_) thread.join();
  }

  int wanted() const { return wanted_; }

  void run(const std::function<void(int)>& fn) {
    std::lock_guard turn(turn_);
    {
      std::lock_guard lock(mutex_);
      fn_ = &fn;
      busy_ = static_cast<int>(threads_.size());
      ++round_;
    }
    start_.notify_all();
    fn(0);
    std::unique_lock lock(mutex_);
    done_.wait(lock, [this] { return busy_ == 0; });
  }

 private:
  void serve(int worker) {
    for (std::uint64_t seen = 0;;) {
      {
        std::unique_lock lock(mutex_);
        start_.wait(lock, [&] { return closing_ || round_ != seen; });
        if (closing_) return;
        seen = round_;
      }
      (*fn_)(worker);
      std::lock_guard lock(mutex_);
      if (--busy_ == 0) done_.notify_one();
    }
  }

  int wanted_;
  std::mutex turn_, mutex_;
  std::condition_variable start_, done_;
  std::vector<std::thread> threads_;
  const std::function<void(int)>* fn_ = nullptr;
  std::uint64_t round_ = 0;
  int busy_ = 0;
  bool closing_ = false;
};

int& wanted_threads() {
  static int threads = usable_cores();
  return threads;
}

ThreadRunner& foreign_runner() {
  static ThreadRunner runner;
  return runner;
}

void run_on_own_pool(int workers, const std::function<void(int)>& fn) {
  static std::mutex making;
  static std::shared_ptr<Pool> instance;
  std::shared_ptr<Pool> pool;
  {
    std::lock_guard lock(making);
    if (!instance || instance->wanted() != workers) instance = std::make_shared<Pool>(workers);
    pool = instance;
  }
  pool->run(fn);
}

}  // namespace

int thread_count() { return wanted_threads(); }
void set_thread_count(int threads) { wanted_threads() = std::max(1, threads); }
void set_thread_runner(ThreadRunner runner) { foreign_runner() = std::move(runner); }

SerialSection::SerialSection() : before_(std::exchange(run_in_place, true)) {}
SerialSection::~SerialSection() { run_in_place = before_; }

void parallel_for(std::int64_t tasks, const std::function<void(std::int64_t, int)>& body) {
  if (tasks <= 0) return;
  if (run_in_place || tasks == 1 || thread_count() == 1) {
    for (std::int64_t task = 0; task < tasks; ++task) body(task, 0);
    return;
  }
  std::atomic<std::int64_t> next{0};
  std::exception_ptr failure;
  std::mutex failure_mutex;
  const auto work = [&](int worker) {
    const SerialSection nested_calls_stay_here;
    for (std::int64_t task; (task = next.fetch_add(1)) < tasks;) {
      try {
        body(task, worker);
      } catch (...) {
        std::lock_guard lock(failure_mutex);
        if (!failure) failure = std::current_exception();
        next.store(tasks);
      }
    }
  };
  if (foreign_runner())
    foreign_runner()(thread_count(), work);
  else
    run_on_own_pool(thread_count(), work);
  if (failure) std::rethrow_exception(failure);
}

}  // namespace kvatlas
