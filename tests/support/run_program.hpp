// SPDX-License-Identifier: Apache-2.0
// Runs the program as a user does, and keeps what it said.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace kvatlas::testing_support {

struct Finished {
  int status;  // the exit code; 128 + the signal's number if a signal ended it
  std::string out, err;
};

struct RunHow {
  std::string interrupt_at = {};  // once stderr holds it, the program is sent a SIGINT
  std::chrono::microseconds kill_after{
      0};  // it, and what it started, is sent a SIGKILL then; 0: not
  std::int64_t largest_file =
      0;  // bytes that it may write to a file, as on a full disk; 0: no limit
};

/// The program of a build and its arguments, without standard input. It is killed after fifteen
/// minutes.
Finished run_program(const std::vector<std::string>& command, const RunHow& how = {});

/// The same with build/bin/kvatlas.
Finished run_kvatlas(const std::vector<std::string>& arguments, const RunHow& how = {});
std::string kvatlas_program();

}  // namespace kvatlas::testing_support
