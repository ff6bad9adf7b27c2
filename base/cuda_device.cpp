// SPDX-License-Identifier: Apache-2.0
#include "base/cuda_device.hpp"

// The body of a build without CUDA; with it, cuda_device.cu answers.
#if !KVATLAS_HAS_CUDA
kvatlas::CudaDevices kvatlas::cuda_devices() { return {{}, "kvatlas was built without CUDA"}; }
#endif
