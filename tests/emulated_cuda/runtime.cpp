// SPDX-License-Identifier: Apache-2.0
// The functions of CUDA's runtime that the kernels and their tests call, for one device whose
// memory is the heap.
#include <cstdlib>
#include <cstring>

#include <cuda_runtime_api.h>

#include "kernels/cuda_support.hpp"

std::optional<std::string> kvatlas::kernels::cuda::device_problem() { return std::nullopt; }

extern "C" {

const char* cudaGetErrorString(cudaError_t error) {
  return error == cudaSuccess ? "no error" : "an error of the emulated device";
}
cudaError_t cudaGetLastError() { return cudaSuccess; }
cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}
cudaError_t cudaMalloc(void** to, std::size_t bytes) {
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
