// SPDX-License-Identifier: Apache-2.0
// What the benches that are programs of their own share.
#pragma once

#include <chrono>
#include <cstdio>
#include <exception>

namespace kvatlas::bench {

using Clock = std::chrono::steady_clock;

inline double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// main(): runs it; what it throws goes to stderr, and is status 1.
template <class Run>
int run_bench(Run run, int argc, char** argv) {
  try {
    run(argc, argv);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}

}  // namespace kvatlas::bench
