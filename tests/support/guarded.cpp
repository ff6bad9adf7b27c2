// SPDX-License-Identifier: Apache-2.0
#include "tests/support/guarded.hpp"

#include <new>

#include "base/error.hpp"
#if KVATLAS_HAS_CUDA
#include <cuda_runtime_api.h>
#endif

namespace kvatlas::testing_support {

#if KVATLAS_HAS_CUDA
namespace {
void check(cudaError_t status) {
  if (status != cudaSuccess) fail(ErrorCode::resource, cudaGetErrorString(status));
}
}  // namespace
#endif

std::shared_ptr<void> allocate(std::int64_t bytes, Memory memory) {
  if (memory == Memory::host)
    return {::operator new(static_cast<std::size_t>(bytes)), [](void* p) { ::operator delete(p); }};
#if KVATLAS_HAS_CUDA
  void* pointer = nullptr;
  check(cudaMalloc(&pointer, static_cast<std::size_t>(bytes)));
  return {pointer, [](void* p) { cudaFree(p); }};
#else
  fail(ErrorCode::unsupported, "no device memory in this build");
#endif
}

void copy_bytes(void* to, const void* from, std::int64_t bytes) {
#if KVATLAS_HAS_CUDA
  // Without a device every pointer is the host's.
  int devices = 0;
  if (cudaGetDeviceCount(&devices) == cudaSuccess && devices > 0)
    return check(cudaMemcpy(to, from, static_cast<std::size_t>(bytes), cudaMemcpyDefault));
#endif
  std::memcpy(to, from, static_cast<std::size_t>(bytes));
}

}  // namespace kvatlas::testing_support
