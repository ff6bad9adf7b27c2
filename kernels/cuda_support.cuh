// SPDX-License-Identifier: Apache-2.0
// What every .cu file needs: error checks, scratch memory of a stream, element types.
#pragma once

#include <cstdint>
#include <type_traits>

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "kernels/base/error.hpp"
#include "kernels/base/view.hpp"

namespace kvatlas::kernels::cuda {

inline void check(cudaError_t status, const char* what) {
  if (status != cudaSuccess)
    fail(status == cudaErrorMemoryAllocation ? ErrorCode::resource : ErrorCode::unsupported, what,
         ": ", cudaGetErrorString(status));
}

/// To be called right after a launch.
inline void check_launch(const char* kernel) { check(cudaGetLastError(), kernel); }

/// Device memory that lives in stream order: freed after what was launched before its end.
template <class T>
class Scratch {
 public:
  Scratch(std::int64_t count, cudaStream_t stream) : stream_(stream) {
    if (count > 0)
      check(cudaMallocAsync(&data_, static_cast<std::size_t>(count) * sizeof(T), stream),
            "device scratch memory");
  }
  ~Scratch() {
    if (data_ != nullptr) cudaFreeAsync(data_, stream_);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  T* data() const { return static_cast<T*>(data_); }

 private:
  void* data_ = nullptr;
  cudaStream_t stream_;
};

/// Calls fn(T{}) with the C++ type of `type`: one branch, outside the kernels.
template <class Fn>
void with_type(DType type, Fn&& fn) {
  switch (type) {
    case DType::f32:
      return fn(float{});
    case DType::f16:
      return fn(__half{});
    case DType::bf16:
      return fn(__nv_bfloat16{});
  }
}

__device__ inline float to_float(float value) { return value; }
__device__ inline float to_float(__half value) { return __half2float(value); }
__device__ inline float to_float(__nv_bfloat16 value) { return __bfloat162float(value); }

}  // namespace kvatlas::kernels::cuda
