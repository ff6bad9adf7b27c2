// SPDX-License-Identifier: Apache-2.0
// What the MPI module offers to the program, in plain C.
#pragma once

#include <cstdint>

extern "C" {

struct KvatlasMpi {
  int rank, size, local_rank, local_size;
  /// Whether the operation that was begun has ended; 1 or 0.
  void (*begin_barrier)();
  int (*barrier_ended)();
  /// Of the others: asks rank 0 for work. answer_came: fills `index` (-1: none left).
  void (*ask)();
  int (*answer_came)(std::int64_t* index);
  /// For rank 0: whether another rank asks for work and which one, and the answer to it.
  int (*question_came)(int* from);
  void (*answer)(int to, std::int64_t index);
  void (*abort)(int status);
  void (*finish)();
};

/// Starts MPI; nullptr if it gives no threads.
const KvatlasMpi* kvatlas_open_mpi();
}
