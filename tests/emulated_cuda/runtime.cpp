// SPDX-License-Identifier: Apache-2.0
// The functions of CUDA's runtime that the kernels and their tests call, for one device whose
// memory is the heap.
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string_view>

#include <cuda_runtime_api.h>

#include "kernels/cuda_support.hpp"
#include "tests/emulated_cuda/device.hpp"

std::optional<std::string> kvatlas::kernels::cuda::device_problem() { return std::nullopt; }

namespace kvatlas::emulated_cuda {
namespace {

std::atomic<cudaError_t> last_error = cudaSuccess;

/// How many calls of the kind were made; written at the end to the file KVATLAS_FAULT_COUNT.
struct Calls {
  std::atomic<long> made = 0;
  ~Calls() {
    if (const char* file = std::getenv("KVATLAS_FAULT_COUNT")) std::ofstream(file) << made;
  }
};

/// What a call of this kind ends with.
cudaError_t outcome(std::string_view kind, cudaError_t failure) {
  static const char* fault = std::getenv("KVATLAS_CUDA_FAULT");
  if (!fault) return cudaSuccess;
  static Calls calls;
  const std::string_view words = fault;
  const std::size_t colon = words.find(':');
  const bool lost = words.starts_with("lost");
  if (!lost && words.substr(0, colon) != kind) return cudaSuccess;
  const long call = ++calls.made, failing = std::strtol(fault + colon + 1, nullptr, 10);
  if (failing == 0 || (lost ? call < failing : call != failing)) return cudaSuccess;
  return last_error = lost ? cudaErrorDevicesUnavailable : failure;
}

}  // namespace

bool may_start() { return outcome("launch", cudaErrorNoKernelImageForDevice) == cudaSuccess; }

}  // namespace kvatlas::emulated_cuda

using kvatlas::emulated_cuda::last_error;
using kvatlas::emulated_cuda::outcome;

extern "C" {

const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "no error";
    case cudaErrorMemoryAllocation:
      return "out of memory";
    case cudaErrorNoKernelImageForDevice:
      return "no kernel image is available for execution on the device";
    default:
      return "an error of the emulated device";
  }
}
cudaError_t cudaGetLastError() { return last_error.exchange(cudaSuccess); }
cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t*, int) { return cudaSuccess; }
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t, cudaMemPoolAttr, void*) { return cudaSuccess; }
cudaError_t cudaMalloc(void** to, std::size_t bytes) {
  *to = nullptr;
  if (const cudaError_t status = outcome("memory", cudaErrorMemoryAllocation);
      status != cudaSuccess)
    return status;
  *to = std::malloc(bytes);
  if (*to == nullptr) return cudaErrorMemoryAllocation;
  std::memset(*to, 0xff, bytes);  // NaN in every type: what is read before it is written shows
  return cudaSuccess;
}
cudaError_t cudaFree(void* pointer) {
  std::free(pointer);
  return cudaSuccess;
}
cudaError_t cudaMallocAsync(void** to, std::size_t bytes, cudaStream_t) {
  return cudaMalloc(to, bytes);
}
cudaError_t cudaFreeAsync(void* pointer, cudaStream_t) { return cudaFree(pointer); }
cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t) {
  std::memset(to, value, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind) {
  std::memcpy(to, from, bytes);
  return cudaSuccess;
}

}  // extern "C"
