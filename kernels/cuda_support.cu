// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime_api.h>

#include "kernels/cuda_support.hpp"

namespace kvatlas::kernels::cuda {

std::optional<std::string> device_problem() {
  int devices = 0;
  const cudaError_t status = cudaGetDeviceCount(&devices);
  if (status != cudaSuccess) return std::string(cudaGetErrorString(status));
  if (devices == 0) return std::string("no NVIDIA GPU was found");
  return std::nullopt;
}

}  // namespace kvatlas::kernels::cuda
