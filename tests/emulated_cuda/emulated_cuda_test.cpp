// SPDX-License-Identifier: Apache-2.0
// That the emulation notices what a kernel may not do.
#include <numeric>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/emulated_cuda/device.hpp"
#include "tests/support/error_of.hpp"

namespace kvatlas::emulated_cuda {
namespace {

using testing::HasSubstr;

std::string problem_of(int threads, const std::function<void()>& kernel) {
  return testing_support::error_of([&] { run({1}, threads, 0, kernel); });
}

TEST(EmulatedCuda, EachThreadOfEachBlockRunsOnce) {
  std::vector<int> runs(3 * 2 * 40);
  run({3, 2}, 40, 0, [&] {
    const Here at = here();
    ++runs[(at.block.y * at.blocks.x + at.block.x) * at.threads.x + at.thread.x];
  });
  EXPECT_THAT(runs, testing::Each(1));
}

TEST(EmulatedCuda, ABarrierHoldsUntilAllAreThere) {
  std::vector<int> left(64), seen(64);
  for (int order = 0; order < 3; ++order) {
    run({1}, 64, 0, [&] {
      const auto t = here().thread.x;
      left[t] = static_cast<int>(t) + order;
      wait_for_block();
      seen[t] = left[63 - t];
    });
    for (int t = 0; t < 64; ++t) EXPECT_EQ(seen[t], 63 - t + order);
  }
}

TEST(EmulatedCuda, ThreadsThatEndedAreNotWaitedFor) {
  std::vector<int> after(64);
  run({1}, 64, 0, [&] {
    const auto t = here().thread.x;
    if (t >= 10) return;
    wait_for_block();
    after[t] = 1;
  });
  EXPECT_EQ(std::accumulate(after.begin(), after.end(), 0), 10);
}

TEST(EmulatedCuda, AShuffleReadsTheOtherLane) {
  std::vector<std::uint64_t> got(96);
  run({1}, 96, 0, [&] {
    const auto t = here().thread.x;
    for (int again = 0; again < 3; ++again) got[t] = shuffle(~0u, t, lane() ^ 5);
  });
  for (std::uint64_t t = 0; t < 96; ++t) EXPECT_EQ(got[t], t ^ 5u);
}

TEST(EmulatedCuda, WhatCudaLeavesUndefinedIsAnError) {
  EXPECT_THAT(problem_of(64,
                         [] {
                           if (lane() != 3) shuffle(~0u, 0, 0);
                         }),
              HasSubstr("others do not reach"));
  EXPECT_THAT(problem_of(64,
                         [] {
                           if (here().thread.x < 32)
                             wait_for_block();
                           else if (lane() > 0)
                             wait_for_warp();
                         }),
              HasSubstr("others do not reach"));
  EXPECT_THAT(problem_of(32,
                         [] {
                           if (lane() < 16)
                             shuffle(~0u, 0, 0);
                           else
                             wait_for_warp();
                         }),
              HasSubstr("in different places"));
  EXPECT_THAT(problem_of(32, [] { shuffle(0xffffu, 0, 0); }), HasSubstr("a part of a warp"));
  EXPECT_THAT(problem_of(40, [] { shuffle(~0u, 0, 0); }), HasSubstr("fewer than 32"));
  EXPECT_EQ(problem_of(32, [] { shuffle(~0u, 0, 0); }), "");
}

TEST(EmulatedCuda, ALaunchThatNoDeviceTakesIsAnError) {
  const auto nothing = [] {};
  EXPECT_THROW(run({0}, 32, 0, nothing), Error);
  EXPECT_THROW(run({1, 65536}, 32, 0, nothing), Error);
  EXPECT_THROW(run({1}, 1025, 0, nothing), Error);
  EXPECT_THROW(run({1}, 32, 49153, nothing), Error);
}

}  // namespace
}  // namespace kvatlas::emulated_cuda
