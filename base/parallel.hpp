// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>

namespace kvatlas {

/// The number of threads that parallel_for uses, the calling thread included. At first it is the
/// number of cores that this process may use.
int thread_count();

/// Sets that number, which is at least 1. Must not be called while a parallel_for runs.
void set_thread_count(int threads);

/// Runs fn(worker) once on each of `workers` threads at the same time and waits for all.
using ThreadRunner = std::function<void(int workers, const std::function<void(int worker)>& fn)>;

/// Makes parallel_for use another library's threads instead of its own, so that two pools do not
/// fight for the cores. An empty runner goes back to our own.
void set_thread_runner(ThreadRunner runner);

/// While such an object lives, a parallel_for in the thread that made it runs in that thread alone.
/// Background work uses it, so as not to take the cores from the foreground.
class SerialSection {
 public:
  SerialSection();
  ~SerialSection();
  SerialSection(const SerialSection&) = delete;
  SerialSection& operator=(const SerialSection&) = delete;

 private:
  bool before_;
};

/// Calls body(task, worker) once for each task in [0, tasks), spread over the threads; worker is in
/// [0, thread_count()), for scratch memory. Which thread gets which task is not fixed, so what a
/// task computes must depend on its number alone. The first exception thrown is rethrown here after
/// every running task has ended. A nested call runs its tasks in the calling thread, as worker 0.
void parallel_for(std::int64_t tasks,
                  const std::function<void(std::int64_t task, int worker)>& body);

}  // namespace kvatlas
