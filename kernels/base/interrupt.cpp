// SPDX-License-Identifier: Apache-2.0
#include "kernels/base/interrupt.hpp"

#include <atomic>
#include <csignal>

#include "kernels/base/error.hpp"

namespace kvatlas {
namespace {

std::atomic<bool> flag{false};
static_assert(std::atomic<bool>::is_always_lock_free);

void raise_flag(int) { flag = true; }

}  // namespace

void catch_interrupts() {
  struct sigaction action = {};
  action.sa_handler = raise_flag;
  action.sa_flags = static_cast<int>(SA_RESETHAND | SA_RESTART);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

bool interrupted() { return flag; }

void stop_if_interrupted() {
  if (interrupted()) fail(ErrorCode::cancelled, "interrupted");
}

}  // namespace kvatlas
