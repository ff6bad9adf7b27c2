// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace kvatlas {

/// One NVIDIA GPU. Its place in CudaDevices::devices is the number that CUDA gives it.
struct CudaDevice {
  std::string name;
  int major = 0;  // compute capability
  int minor = 0;
  std::int64_t total_bytes = 0;
  std::int64_t free_bytes = 0;  // at the time of asking; 0 if the GPU cannot be used
};

/// The GPUs of this machine, and where there are none, why.
struct CudaDevices {
  std::vector<CudaDevice> devices;
  std::string
      why_none;  // a clause such as "no NVIDIA driver is installed"; empty if there are some
};

/// Asks the driver each time it is called. No driver, no GPU and a build without CUDA are answers,
/// not errors. Asking for free memory starts CUDA on every GPU, which takes some hundred
/// milliseconds the first time.
CudaDevices cuda_devices();

}  // namespace kvatlas
