// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace kvatlas::capture {

/// Where and in which number format a model runs, as chosen.
struct Placement {
  std::string device;   // "cpu", "cuda:0"
  std::string dtype;    // "float32", "float16", "bfloat16"
  std::string because;  // which GPU it is, or why `auto` took none; empty if neither applies
};

/// Settles --device (auto, cpu, cuda, cuda:N) and --dtype (auto, float32, float16, bfloat16) for
/// this machine, and opens LibTorch's CUDA part if a GPU is taken. A GPU that is asked for and
/// missing is an error that says what is missing; `auto` falls back to the CPU.
Placement choose_placement(const std::string& device, const std::string& dtype);

/// The placement for people: "cpu", "cuda:0 (NVIDIA H100)", "cpu (no GPU: why)".
std::string device_text(const Placement& placement);

/// Makes LibTorch and our own kernels share `threads` threads (0: all cores that may be used).
void use_threads(int threads);

}  // namespace kvatlas::capture
