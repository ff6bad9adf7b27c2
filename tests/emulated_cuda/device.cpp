// SPDX-License-Identifier: Apache-2.0
#include "tests/emulated_cuda/device.hpp"

#include <algorithm>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <random>
#include <ucontext.h>
#include <utility>
#include <vector>

#include <climits>

#include "base/error.hpp"
// This file itself is never instrumented; KVATLAS_TSAN says that the kernels are.
#if KVATLAS_TSAN
#include <sanitizer/tsan_interface.h>
#endif

namespace kvatlas::emulated_cuda {
namespace {

constexpr std::size_t kStack = 64 << 10;
constexpr int kMostThreads = 1024;
constexpr unsigned kMostInGrid = 65535;  // in its second and third dimension
constexpr std::int64_t kMostShared = 48 << 10;

/// For the thread sanitizer, what came before a release comes before what follows an acquire.
class Order {
 public:
#if KVATLAS_TSAN
  void release() { __tsan_release(&place_); }
  void acquire() { __tsan_acquire(&place_); }

 private:
  char place_ = 0;
#else
  void release() {}
  void acquire() {}
#endif
};

/// A thread of control that is left and taken up again; no order follows from that.
class Fiber {
 public:
#if KVATLAS_TSAN
  Fiber() : sanitizers_(__tsan_get_current_fiber()) {}
  explicit Fiber(void (*entry)()) : Fiber(entry, __tsan_create_fiber(0)) {}
  ~Fiber() {
    if (stack_) __tsan_destroy_fiber(sanitizers_);
  }
#else
  Fiber() = default;  // the one that runs
  explicit Fiber(void (*entry)()) : Fiber(entry, nullptr) {}
#endif
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  static void change(Fiber& from, Fiber& to) {
#if KVATLAS_TSAN
    __tsan_switch_to_fiber(to.sanitizers_, __tsan_switch_to_fiber_no_sync);
#endif
    // Contexts ask the kernel at each change; these jumps do not.
    if (__builtin_setjmp(from.left_) == 0) to.take_up();
  }

 private:
  /// `entry` must not return.
  Fiber(void (*entry)(), void* sanitizers) : stack_(new char[kStack]), sanitizers_(sanitizers) {
    getcontext(&begin_);
    begin_.uc_stack.ss_sp = stack_.get();
    begin_.uc_stack.ss_size = kStack;
    makecontext(&begin_, entry, 0);
  }

  [[noreturn, gnu::noinline]] void take_up() {
    if (stack_ && !std::exchange(begun_, true)) setcontext(&begin_);
    __builtin_longjmp(left_, 1);
  }

  ucontext_t begin_{};
  std::unique_ptr<char[]> stack_;
  bool begun_ = false;
  void* left_[5] = {};
  [[maybe_unused]] void* sanitizers_ = nullptr;
};

/// Where threads wait until all are there.
struct Barrier {
  int waiting = 0;
  Order orders[2];  // by turns: who is late must not see what the others did after they went on
  int turn = 0;
  std::uint64_t values[2][kWarp] = {};  // of a warp: what each lane brought
  bool shuffles = false;
};

struct Thread {
  explicit Thread(void (*entry)()) : fiber(entry) {}
  Fiber fiber;
  const Barrier* waits_at = nullptr;
  bool done = false;
  uint3 index{};
};

/// The block that runs, one at a time.
class Block {
 public:
  Here here() const {
    const uint3& at = threads_[running_]->index;
    return {at, index_, shape_, grid_};
  }
  int running() const { return running_; }
  bool backwards() const { return launches_ % 2 == 0; }
  void* shared() { return shared_.data(); }

  void prepare(dim3 grid, int threads, std::int64_t shared_bytes) {
    scheduler_.emplace();
    grid_ = grid;
    shape_ = dim3(static_cast<unsigned>(threads));
    // Not filled: a block finds what another left, as on a device.
    shared_.resize(static_cast<std::size_t>(shared_bytes));
    while (threads_.size() < static_cast<std::size_t>(threads))
      threads_.push_back(std::make_unique<Thread>(live));
    order_.resize(static_cast<std::size_t>(threads));
    std::iota(order_.begin(), order_.end(), 0);
    if (launches_ % 3 == 1) std::reverse(order_.begin(), order_.end());
    if (launches_ % 3 == 2) std::shuffle(order_.begin(), order_.end(), std::mt19937(launches_));
    ++launches_;
  }

  void run(uint3 index, const std::function<void()>& body) {
    index_ = index;
    body_ = &body;
    alive_ = static_cast<int>(order_.size());
    block_.waiting = 0;
    warps_.assign(order_.size() / kWarp + 1, {});
    for (const int t : order_) {
      Thread& thread = *threads_[t];
      thread.waits_at = nullptr;
      thread.done = false;
      thread.index = {static_cast<unsigned>(t), 0, 0};
    }
    begun_.release();
    bool moved = true;
    while (alive_ > 0 && moved && problem_ == nullptr) {
      moved = false;
      for (const int t : order_) {
        Thread& thread = *threads_[t];
        if (thread.waits_at != nullptr || thread.done) continue;
        moved = true;
        running_ = t;
        Fiber::change(*scheduler_, thread.fiber);
      }
    }
    ended_.acquire();
    if (problem_ == nullptr && alive_ > 0)
      problem_ = "threads wait at a barrier that others do not reach";
    if (problem_ == nullptr) return;
    threads_.clear();  // they will not be taken up again
    fail(ErrorCode::internal, "block ", index_.x, ": ", std::exchange(problem_, nullptr));
  }

  void wait_for_block() { wait(block_, alive_); }

  std::uint64_t meet_warp(bool shuffle, unsigned mask, std::uint64_t value, int lane) {
    const auto warp = static_cast<std::size_t>(running_ / kWarp);
    const int mine = running_ % kWarp;
    if (mask != ~0u || lane < 0 || lane >= kWarp)
      give_up("a shuffle with a part of a warp or with a lane that no warp has");
    if ((warp + 1) * kWarp > order_.size()) give_up("a warp meets that has fewer than 32 threads");
    Barrier& barrier = warps_[warp];
    if (barrier.waiting > 0 && barrier.shuffles != shuffle)
      give_up("threads of a warp meet in different places");
    barrier.shuffles = shuffle;
    const auto turn = static_cast<std::size_t>(barrier.turn);
    barrier.values[turn][mine] = value;
    wait(barrier, kWarp);
    return barrier.values[turn][lane];
  }

 private:
  static void live();

  void leave() { Fiber::change(threads_[running_]->fiber, *scheduler_); }

  void give_up(const char* problem) {
    problem_ = problem;
    leave();
  }

  void release_if_all(Barrier& barrier, int all) {
    if (barrier.waiting == 0 || barrier.waiting < all) return;
    const bool of_block = &barrier == &block_;
    const std::size_t first =
        of_block ? 0 : static_cast<std::size_t>(&barrier - warps_.data()) * kWarp;
    const std::size_t end = of_block ? order_.size() : first + kWarp;
    for (std::size_t t = first; t < end; ++t)
      if (threads_[t]->waits_at == &barrier) threads_[t]->waits_at = nullptr;
    barrier.waiting = 0;
    barrier.turn ^= 1;
  }

  /// A shuffle passes values on and orders nothing else.
  void wait(Barrier& barrier, int all) {
    Order& order = barrier.orders[barrier.turn];
    const bool orders = !barrier.shuffles;
    if (orders) order.release();
    threads_[running_]->waits_at = &barrier;
    ++barrier.waiting;
    release_if_all(barrier, all);
    leave();
    if (orders) order.acquire();
  }

  dim3 grid_, shape_;
  uint3 index_{};
  const std::function<void()>* body_ = nullptr;
  std::vector<char> shared_;
  std::vector<std::unique_ptr<Thread>> threads_;
  std::vector<int> order_;  // in which the threads take turns
  unsigned launches_ = 0;
  int running_ = 0, alive_ = 0;
  Barrier block_;
  std::vector<Barrier> warps_;
  Order begun_, ended_;
  std::optional<Fiber> scheduler_;  // the thread of the process that called
  const char* problem_ = nullptr;
};

Block& block() {
  static Block only;
  return only;
}

/// What a thread does for one block after the other.
void Block::live() {
  Block& self = block();
  for (;;) {
    self.begun_.acquire();
    (*self.body_)();
    self.ended_.release();
    self.threads_[self.running_]->done = true;
    --self.alive_;
    self.release_if_all(self.block_, self.alive_);
    self.leave();
  }
}

}  // namespace

Here here() { return block().here(); }
int lane() { return block().running() % kWarp; }
void* dynamic_shared() { return block().shared(); }
void wait_for_block() { block().wait_for_block(); }
void wait_for_warp() { block().meet_warp(false, ~0u, 0, 0); }
std::uint64_t shuffle(unsigned mask, std::uint64_t value, int lane) {
  return block().meet_warp(true, mask, value, lane);
}

void run(dim3 blocks, int threads, std::int64_t shared_bytes, const std::function<void()>& body) {
  if (blocks.x == 0 || blocks.y == 0 || blocks.z == 0 || blocks.x > INT_MAX ||
      blocks.y > kMostInGrid || blocks.z > kMostInGrid || threads < 1 || threads > kMostThreads ||
      shared_bytes < 0 || shared_bytes > kMostShared)
    fail(ErrorCode::internal, "a launch that no device takes: ", blocks.x, " x ", blocks.y, " x ",
         blocks.z, " blocks of ", threads, " threads and ", shared_bytes, " bytes");
  static std::mutex device;  // which takes one kernel after the other
  const std::lock_guard turn(device);
  block().prepare(blocks, threads, shared_bytes);
  const std::uint64_t count = std::uint64_t{blocks.x} * blocks.y * blocks.z;
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::uint64_t at = block().backwards() ? count - 1 - i : i;
    block().run(
        {static_cast<unsigned>(at % blocks.x), static_cast<unsigned>(at / blocks.x % blocks.y),
         static_cast<unsigned>(at / blocks.x / blocks.y)},
        body);
  }
}

}  // namespace kvatlas::emulated_cuda
