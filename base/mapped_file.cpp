// SPDX-License-Identifier: Apache-2.0
#include "base/mapped_file.hpp"

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <fcntl.h>
#include <mutex>
#include <string>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.hpp"

namespace kvatlas {
namespace {

/// A mapping that the signal handler knows. Slots are linked once, reused, and never freed, so that
/// the handler can walk them without a lock.
struct Slot {
  std::atomic<bool> taken{true};
  std::atomic<std::uintptr_t> begin{0};  // 0: no mapping
  std::atomic<std::uintptr_t> end{0};
  std::atomic<bool> damaged{false};
  Slot* next = nullptr;
};

std::atomic<Slot*> all_slots{nullptr};
std::uintptr_t page_bytes = 4096;
struct sigaction earlier_action;

/// Replaces what cannot be read of a registered mapping by zeros, so that the reader goes on and
/// finds the damage by require_intact(). Calls only mmap and lock-free atomics.
void on_bus_error(int signal, siginfo_t* info, void* context) {
  const int saved_errno = errno;
  const auto address = reinterpret_cast<std::uintptr_t>(info->si_addr);
  for (Slot* slot = all_slots.load(); slot != nullptr; slot = slot->next) {
    const std::uintptr_t begin = slot->begin.load(), end = slot->end.load();
    if (begin == 0 || address < begin || address >= end) continue;
    const std::uintptr_t page = address & ~(page_bytes - 1);
    void* zeros = mmap(reinterpret_cast<void*>(page), end - page, PROT_READ,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    if (zeros == MAP_FAILED) break;
    slot->damaged.store(true);
    errno = saved_errno;
    return;
  }
  if ((earlier_action.sa_flags & SA_SIGINFO) != 0) {
    earlier_action.sa_sigaction(signal, info, context);
  } else if (earlier_action.sa_handler != SIG_DFL && earlier_action.sa_handler != SIG_IGN) {
    earlier_action.sa_handler(signal);
  } else {
    // The access is tried again and ends the process as if there were no handler.
    struct sigaction standard {};
    standard.sa_handler = SIG_DFL;
    sigaction(SIGBUS, &standard, nullptr);
  }
  errno = saved_errno;
}

void install_handler_once() {
  static std::once_flag once;
  std::call_once(once, [] {
    page_bytes = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
    struct sigaction action {};
    action.sa_sigaction = on_bus_error;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;
    sigemptyset(&action.sa_mask);
    sigaction(SIGBUS, nullptr, &earlier_action);
    sigaction(SIGBUS, &action, nullptr);
  });
}

Slot* take_slot() {
  for (Slot* slot = all_slots.load(); slot != nullptr; slot = slot->next) {
    bool taken = false;
    if (slot->taken.compare_exchange_strong(taken, true)) {
      slot->damaged.store(false);
      return slot;
    }
  }
  auto* slot = new Slot;
  slot->next = all_slots.load();
  while (!all_slots.compare_exchange_weak(slot->next, slot)) {
  }
  return slot;
}

struct Descriptor {
  int number = -1;
  explicit Descriptor(int fd) : number(fd) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (number >= 0) ::close(number);
  }
};

[[noreturn]] void fail_errno(const std::string& what, int error) {
  fail(ErrorCode::unreadable, what, ": ", std::strerror(error));
}

}  // namespace

struct MappedFile::State {
  State(const std::filesystem::path& where, int fd) : path(where), file(fd) {}
  ~State() {
    if (slot != nullptr) {
      slot->begin.store(0);
      slot->end.store(0);
      slot->taken.store(false);
    }
    if (data != nullptr) munmap(data, size);
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  std::filesystem::path path;
  Descriptor file;
  void* data = nullptr;
  std::size_t size = 0;
  timespec modified{};
  Slot* slot = nullptr;
};

MappedFile::MappedFile(std::unique_ptr<State> state) : state_(std::move(state)) {}
MappedFile::MappedFile(MappedFile&&) noexcept = default;
MappedFile& MappedFile::operator=(MappedFile&&) noexcept = default;
MappedFile::~MappedFile() = default;

MappedFile MappedFile::open(const std::filesystem::path& path) {
  const std::string name = quoted(path.string(), 400);
  // O_NONBLOCK: opening a pipe must not wait for a writer.
  auto state =
      std::make_unique<State>(path, ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (state->file.number < 0) {
    if (errno == ENOENT) fail(ErrorCode::unreadable, "there is no file ", name);
    if (errno == EACCES) fail(ErrorCode::unreadable, "no permission to read ", name);
    if (errno == ELOOP) fail(ErrorCode::unreadable, name, " is a link that leads back to itself");
    fail_errno("cannot open " + name, errno);
  }
  struct stat status {};
  if (fstat(state->file.number, &status) != 0) fail_errno("cannot examine " + name, errno);
  if (S_ISDIR(status.st_mode)) fail(ErrorCode::unreadable, name, " is a folder, expected a file");
  if (!S_ISREG(status.st_mode)) fail(ErrorCode::unreadable, name, " is not a regular file");
  if (status.st_size == 0) fail(ErrorCode::unreadable, name, " is empty");
  state->size = static_cast<std::size_t>(status.st_size);
  state->modified = status.st_mtim;

  install_handler_once();
  void* data = mmap(nullptr, state->size, PROT_READ, MAP_PRIVATE, state->file.number, 0);
  if (data == MAP_FAILED) fail_errno("cannot map " + name, errno);
  state->data = data;
  state->slot = take_slot();
  state->slot->end.store(reinterpret_cast<std::uintptr_t>(data) + state->size);
  state->slot->begin.store(reinterpret_cast<std::uintptr_t>(data));
  return MappedFile(std::move(state));
}

std::span<const std::byte> MappedFile::bytes() const {
  return {static_cast<const std::byte*>(state_->data), state_->size};
}

const std::filesystem::path& MappedFile::path() const { return state_->path; }

void MappedFile::require_intact() const {
  const std::string name = quoted(state_->path.string(), 400);
  struct stat status {};
  if (fstat(state_->file.number, &status) != 0) fail_errno("cannot examine " + name, errno);
  if (static_cast<std::size_t>(status.st_size) != state_->size)
    fail(ErrorCode::unreadable, name, " changed its size while it was read: it had ", state_->size,
         " bytes, now ", status.st_size);
  if (state_->slot->damaged.load())
    fail(ErrorCode::unreadable, "a part of ", name, " could not be read from its disk");
  if (status.st_mtim.tv_sec != state_->modified.tv_sec ||
      status.st_mtim.tv_nsec != state_->modified.tv_nsec)
    fail(ErrorCode::unreadable, name, " was changed while it was read");
}

void MappedFile::will_need(std::span<const std::byte> part) const {
  if (part.empty()) return;
  // Whole pages that touch the part; advice that the kernel does not take is no failure.
  const auto begin = reinterpret_cast<std::uintptr_t>(part.data()) & ~(page_bytes - 1);
  const auto end = reinterpret_cast<std::uintptr_t>(part.data() + part.size());
  madvise(reinterpret_cast<void*>(begin), end - begin, MADV_WILLNEED);
}

void MappedFile::release(std::span<const std::byte> part) const {
  // Only pages that lie wholly inside: the edges may belong to a tensor in use.
  const auto begin =
      (reinterpret_cast<std::uintptr_t>(part.data()) + page_bytes - 1) & ~(page_bytes - 1);
  const auto end = reinterpret_cast<std::uintptr_t>(part.data() + part.size()) & ~(page_bytes - 1);
  if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

}  // namespace kvatlas
