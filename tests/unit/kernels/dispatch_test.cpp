// SPDX-License-Identifier: Apache-2.0
#include "kernels/dispatch.hpp"

#include <algorithm>
#include <cstdlib>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/error_of.hpp"

namespace kvatlas::kernels {
namespace {

using testing::HasSubstr;
using testing_support::error_of;

TEST(Dispatch, AutomaticFollowsTheMemory) {
  EXPECT_EQ(choose({}, Memory::host), Backend::cpu);
  EXPECT_EQ(choose({.backend = Backend::reference}, Memory::host), Backend::reference);
}

TEST(Dispatch, TheEnvironmentForcesABody) {
  setenv("KVATLAS_BACKEND", "reference", 1);
  EXPECT_EQ(choose({}, Memory::host), Backend::reference);
  EXPECT_EQ(choose({.backend = Backend::cpu}, Memory::host), Backend::cpu)
      << "the caller comes first";
  setenv("KVATLAS_BACKEND", "fpga", 1);
  EXPECT_THAT(error_of([] { choose({}, Memory::host); }),
              HasSubstr("'fpga', expected one of [automatic"));
  unsetenv("KVATLAS_BACKEND");
}

TEST(Dispatch, ABodyThatCannotReachTheDataIsAnError) {
  EXPECT_THAT(error_of([] { choose({.backend = Backend::cpu}, Memory::device); }),
              HasSubstr("backend cpu was asked for, but the data lies in device memory"));
  EXPECT_THAT(error_of([] { choose({.backend = Backend::cuda}, Memory::host); }),
              HasSubstr("host memory"));
}

TEST(Dispatch, AMissingGpuIsNamed) {
  if (!cuda_missing()) GTEST_SKIP() << "this machine has a GPU";
  EXPECT_THAT(error_of([] { choose({}, Memory::device); }),
              HasSubstr("backend cuda cannot run here: "));
}

TEST(Dispatch, EveryInstructionSetCanBeForced) {
  const auto targets = cpu_targets();
  ASSERT_FALSE(targets.empty());
  EXPECT_EQ(targets.back(), "scalar");
  EXPECT_EQ(cpu_target(), targets.front());
  for (const auto& name : targets) {
    use_cpu_target(name);
    EXPECT_EQ(cpu_target(), name);
    EXPECT_EQ(cpu_targets(), targets);
  }
  use_cpu_target("");
  EXPECT_EQ(cpu_target(), targets.front());
  EXPECT_THAT(error_of([] { use_cpu_target("avx9"); }),
              HasSubstr("unknown instruction set 'avx9'"));
}

}  // namespace
}  // namespace kvatlas::kernels
