// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime.h>

#include "base/cuda_device.hpp"
#include "base/str.hpp"

namespace kvatlas {
inline namespace cuda_device_cu {

std::string version_str(int version) { return str(version / 1000, '.', version % 1000 / 10); }

std::string why_no_devices(cudaError_t status) {
  int driver = 0;
  cudaDriverGetVersion(&driver);  // leaves 0 where no driver is installed
  if (driver == 0) return "no NVIDIA driver is installed";
  if (status == cudaErrorInsufficientDriver)
    return str("the NVIDIA driver serves CUDA ", version_str(driver), ", kvatlas was built with ",
               version_str(CUDART_VERSION));
  if (status == cudaSuccess || status == cudaErrorNoDevice) return "no NVIDIA GPU is visible";
  return str("the CUDA runtime answered: ", cudaGetErrorString(status));
}

CudaDevice describe(int index) {
  CudaDevice device;
  cudaDeviceProp properties{};
  if (cudaGetDeviceProperties(&properties, index) == cudaSuccess) {
    device.name = properties.name;
    device.major = properties.major;
    device.minor = properties.minor;
    device.total_bytes = static_cast<std::int64_t>(properties.totalGlobalMem);
  }
  std::size_t free_bytes = 0, total_bytes = 0;
  if (cudaSetDevice(index) == cudaSuccess &&
      cudaMemGetInfo(&free_bytes, &total_bytes) == cudaSuccess)
    device.free_bytes = static_cast<std::int64_t>(free_bytes);
  return device;
}

}  // namespace cuda_device_cu

CudaDevices cuda_devices() {
  CudaDevices found;
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess || count == 0) {
    found.why_none = why_no_devices(status);
  } else {
    int current = 0;
    cudaGetDevice(&current);
    for (int index = 0; index < count; ++index) found.devices.push_back(describe(index));
    cudaSetDevice(current);
  }
  cudaGetLastError();  // a failure here must not surface in a caller's next check
  return found;
}

}  // namespace kvatlas
