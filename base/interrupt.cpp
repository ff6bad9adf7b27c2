// SPDX-License-Identifier: Apache-2.0
#include "base/interrupt.hpp"

#include <atomic>
#include <csignal>

#include "base/error.hpp"

namespace kvatlas {
namespace {

std::atomic<bool> flag{false};
static_assert(std::atomic<bool>::is_always_lock_free);

void raise_flag(int) { flag = true; }

void catch_signal(int number, unsigned flags) {
  struct sigaction action = {};
  action.sa_handler = raise_flag;
  action.sa_flags = static_cast<int>(flags);
  sigaction(number, &action, nullptr);
}

bool is_ignored(int number) {
  struct sigaction action = {};
  sigaction(number, nullptr, &action);
  return action.sa_handler == SIG_IGN;
}

}  // namespace

void catch_interrupts() {
  catch_signal(SIGINT, SA_RESETHAND | SA_RESTART);
  catch_signal(SIGTERM, SA_RESETHAND | SA_RESTART);
  // Under nohup it stays ignored; a terminal that closes may send several.
  if (!is_ignored(SIGHUP)) catch_signal(SIGHUP, SA_RESTART);
}

void outlive_readers() {
  struct sigaction action = {};
  action.sa_handler = SIG_IGN;
  sigaction(SIGPIPE, &action, nullptr);
}

bool interrupted() { return flag; }

void stop_if_interrupted() {
  if (interrupted()) fail(ErrorCode::cancelled, "interrupted");
}

}  // namespace kvatlas
