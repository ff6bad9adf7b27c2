// SPDX-License-Identifier: Apache-2.0
// Runs the program as a user does, and keeps what it said.
#pragma once

#include <string>
#include <vector>

namespace kvatlas::testing_support {

struct Finished {
  int status;  // the exit code; 128 + the signal's number if a signal ended it
  std::string out, err;
};

/// build/bin/kvatlas with these arguments, without standard input. Once its stderr holds
/// `interrupt_at`, it is sent a SIGINT. It is killed after five minutes.
Finished run_kvatlas(const std::vector<std::string>& arguments,
                     const std::string& interrupt_at = {});

}  // namespace kvatlas::testing_support
