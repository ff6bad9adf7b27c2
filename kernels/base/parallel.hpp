// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>

namespace kvatlas {

/// Threads that parallel_for uses, the caller included. Defaults to the cores this process may use.
int thread_count();

/// Sets it (at least 1). Not to be called while a parallel_for runs.
void set_thread_count(int threads);

/// Calls body(task, worker) once for each task in [0, tasks), spread over the threads; worker is in
/// [0, thread_count()), for scratch memory. Which thread gets which task is not fixed, so what a
/// task computes must depend on its number alone. The first exception thrown is rethrown here after
/// every running task has ended. A nested call runs its tasks in the calling thread, as worker 0.
void parallel_for(std::int64_t tasks,
                  const std::function<void(std::int64_t task, int worker)>& body);

}  // namespace kvatlas
