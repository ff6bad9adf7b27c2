// SPDX-License-Identifier: Apache-2.0
#include "base/parallel.hpp"

#include <atomic>
#include <stdexcept>
#include <vector>

#include <gtest/gtest.h>

namespace kvatlas {
namespace {

class Threads : public testing::TestWithParam<int> {
  void SetUp() override {
    before_ = thread_count();
    set_thread_count(GetParam());
  }
  void TearDown() override { set_thread_count(before_); }
  int before_ = 1;
};

TEST_P(Threads, EveryTaskRunsOnce) {
  for (std::int64_t tasks : {0, 1, 2, 7, 1000}) {
    std::vector<std::atomic<int>> runs(static_cast<std::size_t>(tasks));
    parallel_for(tasks, [&](std::int64_t task, int worker) {
      ASSERT_GE(worker, 0);
      ASSERT_LT(worker, thread_count());
      ++runs[task];
    });
    for (auto& count : runs) EXPECT_EQ(count, 1);
  }
}

TEST_P(Threads, FirstExceptionIsRethrownAndThePoolStaysUsable) {
  EXPECT_THROW(parallel_for(100,
                            [](std::int64_t task, int) {
                              if (task == 13) throw std::runtime_error("thirteen");
                            }),
               std::runtime_error);
  std::atomic<int> runs{0};
  parallel_for(50, [&](std::int64_t, int) { ++runs; });
  EXPECT_EQ(runs, 50);
}

TEST_P(Threads, NestedCallsRunInPlace) {
  std::atomic<int> runs{0};
  parallel_for(8, [&](std::int64_t, int) {
    parallel_for(8, [&](std::int64_t, int worker) {
      EXPECT_EQ(worker, 0);
      ++runs;
    });
  });
  EXPECT_EQ(runs, 64);
}

INSTANTIATE_TEST_SUITE_P(Parallel, Threads, testing::Values(1, 2, 5));

}  // namespace
}  // namespace kvatlas
