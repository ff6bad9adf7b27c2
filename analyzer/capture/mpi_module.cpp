// SPDX-License-Identifier: Apache-2.0
// The part of the program that is linked with MPI: a module, opened by ranks.cpp.
// The C interface alone: the old C++ one would want another library.
#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include "analyzer/capture/mpi_calls.hpp"

namespace {

constexpr int kQuestion = 1, kAnswer = 2;

MPI_Request barrier_request = MPI_REQUEST_NULL;

void begin_barrier() { MPI_Ibarrier(MPI_COMM_WORLD, &barrier_request); }

int barrier_ended() {
  int done = 0;
  MPI_Test(&barrier_request, &done, MPI_STATUS_IGNORE);
  return done;
}

void ask() { MPI_Send(nullptr, 0, MPI_BYTE, 0, kQuestion, MPI_COMM_WORLD); }

int answer_came(std::int64_t* index) {
  int came = 0;
  MPI_Iprobe(0, kAnswer, MPI_COMM_WORLD, &came, MPI_STATUS_IGNORE);
  if (came != 0) MPI_Recv(index, 1, MPI_INT64_T, 0, kAnswer, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  return came;
}

int question_came(int* from) {
  int came = 0;
  MPI_Status status;
  MPI_Iprobe(MPI_ANY_SOURCE, kQuestion, MPI_COMM_WORLD, &came, &status);
  if (came == 0) return 0;
  *from = status.MPI_SOURCE;
  MPI_Recv(nullptr, 0, MPI_BYTE, *from, kQuestion, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  return 1;
}

void answer(int to, std::int64_t index) {
  MPI_Send(&index, 1, MPI_INT64_T, to, kAnswer, MPI_COMM_WORLD);
}

void abort_all(int status) { MPI_Abort(MPI_COMM_WORLD, status); }

void finish() { MPI_Finalize(); }

}  // namespace

const KvatlasMpi* kvatlas_open_mpi() {
  static KvatlasMpi calls{
      0,      0,         0,     0, begin_barrier, barrier_ended, ask, answer_came, question_came,
      answer, abort_all, finish};
  int threads = 0;
  if (MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &threads) != MPI_SUCCESS ||
      threads < MPI_THREAD_SERIALIZED)
    return nullptr;
  MPI_Comm_rank(MPI_COMM_WORLD, &calls.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &calls.size);
  MPI_Comm local;
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &local);
  MPI_Comm_rank(local, &calls.local_rank);
  MPI_Comm_size(local, &calls.local_size);
  MPI_Comm_free(&local);
  return &calls;
}
