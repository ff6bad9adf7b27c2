// SPDX-License-Identifier: Apache-2.0
// Runs each test of a kernel once for every body: the float64 reference, the CPU body under every
// instruction set that is compiled in and runs here, the CUDA body. A suite derives from KernelTest
// and says KVATLAS_EVERY_BODY(Suite). The CUDA ones carry the name Gpu/… and are skipped where
// there is no device.
#pragma once

#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/parallel.hpp"
#include "kernels/dispatch.hpp"
#include "tests/support/guarded.hpp"
#include "tests/support/random.hpp"
#include "tests/support/tensor.hpp"

namespace kvatlas::testing_support {

inline constexpr float kInf = std::numeric_limits<float>::infinity();
inline constexpr Exec kReference = {.backend = Backend::reference, .stream = nullptr};

/// A backend and, for the CPU one, the instruction set.
struct Body {
  Backend backend;
  std::string cpu;
};

inline void PrintTo(const Body& body, std::ostream* out) {
  *out << (body.backend == Backend::cuda  ? "cuda"
           : body.backend == Backend::cpu ? body.cpu
                                          : "reference");
}

inline std::vector<Body> cpu_bodies() {
  std::vector<Body> bodies;
  for (const auto& target : kernels::cpu_targets()) bodies.push_back({Backend::cpu, target});
  return bodies;
}

inline std::vector<Body> host_bodies() {
  auto bodies = cpu_bodies();
  bodies.push_back({Backend::reference, ""});
  return bodies;
}

class KernelTest : public testing::TestWithParam<Body> {
 protected:
  void SetUp() override {
    if (GetParam().backend == Backend::cuda) {
      if (const auto problem = kernels::cuda_missing())
        GTEST_SKIP() << "no CUDA here: " << *problem;
    }
    kernels::use_cpu_target(GetParam().cpu);
  }
  void TearDown() override { kernels::use_cpu_target(""); }

  Exec exec() const { return {.backend = GetParam().backend, .stream = nullptr}; }
  Memory memory() const {
    return GetParam().backend == Backend::cuda ? Memory::device : Memory::host;
  }
  bool is_reference() const { return GetParam().backend == Backend::reference; }
};

/// What `run` returns must not depend on the number of threads, nor on chance.
template <class Run>
void expect_same_for_any_thread_count(Run&& run) {
  const int before = thread_count();
  set_thread_count(1);
  const auto alone = run();
  for (const int threads : {2, 5}) {
    set_thread_count(threads);
    EXPECT_TRUE(run() == alone) << threads << " threads";
  }
  set_thread_count(before);
}

#define KVATLAS_EVERY_BODY(Suite)                                                              \
  INSTANTIATE_TEST_SUITE_P(Host, Suite,                                                        \
                           testing::ValuesIn(kvatlas::testing_support::host_bodies()),         \
                           testing::PrintToStringParamName());                                 \
  INSTANTIATE_TEST_SUITE_P(Gpu, Suite,                                                         \
                           testing::Values(kvatlas::testing_support::Body{Backend::cuda, ""}), \
                           testing::PrintToStringParamName())

}  // namespace kvatlas::testing_support
