// SPDX-License-Identifier: Apache-2.0
// What the benches that are programs of their own share.
#pragma once

#include <chrono>
#include <cstdio>
#include <exception>
#include <sys/resource.h>
#include <unistd.h>

#include "base/surroundings.hpp"

namespace kvatlas::bench {

using Clock = std::chrono::steady_clock;

inline double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// Processor time of this process so far: what other programs take does not count.
inline double cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds_of = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
  };
  return seconds_of(usage.ru_utime) + seconds_of(usage.ru_stime);
}

/// The highest resident memory so far, in MB: of this process (RUSAGE_SELF), or of the largest of
/// those that it waited for (RUSAGE_CHILDREN).
inline double peak_megabytes(int who = RUSAGE_SELF) {
  rusage usage{};
  getrusage(who, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1000;
}

/// main(): runs it, with threads that sleep as those of the program; what it throws goes to stderr,
/// and is status 1.
template <class Run>
int run_bench(Run run, int argc, char** argv) {
  if (let_threads_sleep()) execv("/proc/self/exe", argv);
  try {
    run(argc, argv);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}

}  // namespace kvatlas::bench
