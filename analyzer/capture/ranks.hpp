// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

namespace kvatlas::capture {

/// The processes that mpirun or srun started for one run, or this one alone. MPI itself lies in a
/// module that is opened only where there is more than one, so the program starts on machines
/// without it.
class Ranks {
 public:
  /// Error(unsupported) if several were started and MPI cannot be opened.
  static std::unique_ptr<Ranks> open();
  virtual ~Ranks() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual int local_rank() const = 0;  // the rank among the processes on this machine
  virtual int local_size() const = 0;

  /// Waits, without taking the processor, until every process has come here.
  virtual void barrier() = 0;
  /// Rank 0 answers the others in the background from `next`, and for itself; `next` is called by
  /// one thread at a time.
  virtual void serve(std::function<std::optional<std::int64_t>(int rank)> next) = 0;
  /// The next piece of work, which rank 0 gives out; nothing if there is none left.
  virtual std::optional<std::int64_t> take() = 0;
  /// Ends all processes of the run, because one cannot go on.
  virtual void abort(int status) = 0;
};

}  // namespace kvatlas::capture
