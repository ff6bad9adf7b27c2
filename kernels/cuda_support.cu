// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime.h>

#include "kernels/cuda_support.hpp"

namespace kvatlas::kernels::cuda {
inline namespace cuda_support_cu {

__global__ void probe() {}

}  // namespace cuda_support_cu

std::optional<std::string> device_problem() {
  int devices = 0;
  const cudaError_t status = cudaGetDeviceCount(&devices);
  if (status != cudaSuccess) return std::string(cudaGetErrorString(status));
  if (devices == 0) return std::string("no NVIDIA GPU was found");
  // Fails where the device's architecture is none of those that were compiled for.
  cudaFuncAttributes attributes;
  const cudaError_t usable = cudaFuncGetAttributes(&attributes, probe);
  if (usable != cudaSuccess) return std::string(cudaGetErrorString(usable));
  return std::nullopt;
}

}  // namespace kvatlas::kernels::cuda
