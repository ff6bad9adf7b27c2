// SPDX-License-Identifier: Apache-2.0
#include "analyzer/capture/ranks.hpp"

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <dlfcn.h>
#include <filesystem>
#include <mutex>
#include <string>
#include <thread>

#include "analyzer/capture/mpi_calls.hpp"
#include "base/error.hpp"
#include "base/interrupt.hpp"
#include "base/surroundings.hpp"

namespace kvatlas::capture {
namespace {

/// How many processes the launcher says it started: Open MPI, MPICH and its kin, a step of Slurm.
int launched() {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"})
    if (const char* text = std::getenv(name))
      return static_cast<int>(std::strtol(text, nullptr, 10));
  return 1;
}

class OneProcess : public Ranks {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  int local_rank() const override { return 0; }
  int local_size() const override { return 1; }
  void barrier() override {}
  void serve(std::function<std::optional<std::int64_t>(int)> next) override {
    next_ = std::move(next);
  }
  std::optional<std::int64_t> take() override { return next_(0); }
  void abort(int) override {}

 private:
  std::function<std::optional<std::int64_t>(int)> next_;
};

class MpiRanks : public Ranks {
 public:
  explicit MpiRanks(const KvatlasMpi& mpi) : mpi_(mpi) {}
  ~MpiRanks() override {
    stop_ = true;
    if (server_.joinable()) server_.join();
    mpi_.finish();
  }
  int rank() const override { return mpi_.rank; }
  int size() const override { return mpi_.size; }
  int local_rank() const override { return mpi_.local_rank; }
  int local_size() const override { return mpi_.local_size; }

  void barrier() override {
    if (server_.joinable()) server_.join();  // it ends when the others have had their last answer
    mpi_.begin_barrier();
    while (mpi_.barrier_ended() == 0) pause();
  }

  void serve(std::function<std::optional<std::int64_t>(int)> next) override {
    next_ = std::move(next);
    server_ = std::thread([this] {
      for (int ended = 0; ended < mpi_.size - 1 && !stop_;) {
        int from = 0;
        if (mpi_.question_came(&from) == 0) {
          pause();
          continue;
        }
        const auto index = next_for(from);
        if (!index) ++ended;
        mpi_.answer(from, index.value_or(-1));
      }
    });
  }

  std::optional<std::int64_t> take() override {
    if (mpi_.rank == 0) return next_for(0);
    mpi_.ask();
    std::int64_t index = -1;
    while (mpi_.answer_came(&index) == 0) {
      stop_if_interrupted();
      pause();
    }
    return index < 0 ? std::nullopt : std::optional(index);
  }

  void abort(int status) override { mpi_.abort(status); }

 private:
  /// MPI's own waiting spins; this leaves the core to the ranks that compute.
  static void pause() { std::this_thread::sleep_for(std::chrono::milliseconds(2)); }

  std::optional<std::int64_t> next_for(int rank) {
    const std::lock_guard lock(mutex_);
    return next_(rank);
  }

  const KvatlasMpi& mpi_;
  std::function<std::optional<std::int64_t>(int)> next_;
  std::mutex mutex_;
  std::thread server_;
  std::atomic<bool> stop_ = false;
};

/// Null, and why, if it cannot be opened.
void* open_module(std::string& trouble) {
  const auto path = program_folder() / KVATLAS_MODULE_DIR "/libkvatlas_mpi.so";
  if (!std::filesystem::exists(path)) {
    trouble = "this build has no MPI: install libopenmpi-dev and build again";
    return nullptr;
  }
  // Open MPI opens parts of its own that look for its symbols among the global ones.
  void* module = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (!module) trouble = dlerror();
  return module;
}

}  // namespace

std::unique_ptr<Ranks> Ranks::open() {
  const int count = launched();
  if (count <= 1) return std::make_unique<OneProcess>();
  std::string trouble;
  void* module = open_module(trouble);
  auto* start =
      module ? reinterpret_cast<decltype(&kvatlas_open_mpi)>(dlsym(module, "kvatlas_open_mpi"))
             : nullptr;
  const KvatlasMpi* mpi = start ? start() : nullptr;
  if (!mpi)
    fail(ErrorCode::unsupported, "this is one of ", count,
         " processes of a parallel run, but MPI cannot be used (",
         trouble.empty() ? "it does not start, or not with threads" : printable(trouble, 300), ")");
  if (mpi->size != count)
    fail(ErrorCode::unsupported, "this is one of ", count,
         " processes of a parallel run, but MPI sees ", mpi->size,
         " of them: the launcher belongs to another MPI (with Slurm try srun --mpi=pmix)");
  return std::make_unique<MpiRanks>(*mpi);
}

}  // namespace kvatlas::capture
