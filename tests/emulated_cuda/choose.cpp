// SPDX-License-Identifier: Apache-2.0
// A program whose kernels all run on the emulated device, which reaches the host's memory: on
// models too, although LibTorch sees no device here. CMakeLists.txt renames choose() of
// dispatch.cpp.
#include "base/cuda_device.hpp"
#include "kernels/dispatch.hpp"

namespace kvatlas {

CudaDevices cuda_devices() { return {{}, "the emulated one runs kernels alone"}; }

namespace kernels {

Backend choose_by_memory(const Exec& exec, Memory memory);

Backend choose(const Exec& exec, Memory memory) {
  return exec.backend == Backend::automatic ? Backend::cuda : choose_by_memory(exec, memory);
}

}  // namespace kernels
}  // namespace kvatlas
