// SPDX-License-Identifier: Apache-2.0
// The memory of tensors on the host: where it lies, and that what is freed is used again.
#include <cstdint>
#include <limits>
#include <malloc.h>
#include <new>
#include <vector>

#include <ATen/ops/empty.h>
#include <c10/core/CPUAllocator.h>
#include <gtest/gtest.h>

#include "analyzer/capture/tensor_memory_impl.hpp"

namespace kvatlas::capture {
namespace {

TEST(TensorMemory, IsAlignedForAnySize) {
  reuse_memory_of_tensors();
  for (std::int64_t bytes = 1; bytes < 300; ++bytes) {
    const at::Tensor tensor = at::empty({bytes}, at::kByte);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(tensor.const_data_ptr()) % 64, 0U) << bytes;
    tensor.fill_(1);
  }
  EXPECT_EQ(at::empty({0}, at::kByte).const_data_ptr(), nullptr);
}

TEST(TensorMemory, WhatCannotBeHadIsOneError) {
  reuse_memory_of_tensors();
  c10::Allocator& memory = *c10::GetCPUAllocator();
  for (const std::size_t bytes :
       {std::numeric_limits<std::size_t>::max(),
        static_cast<std::size_t>(std::numeric_limits<std::ptrdiff_t>::max())})
    EXPECT_THROW(memory.allocate(bytes), std::bad_alloc);
  memory.raw_deallocate(memory.raw_allocate(100));
}

// Small things that are kept lie between the tensors, so that their holes do not become one.
TEST(TensorMemory, AFreedTensorLeavesRoomForTheNextOfItsSize) {
  reuse_memory_of_tensors();
  constexpr std::int64_t kCount = 300, kBytes = 100'000;  // too small for mappings of their own
  std::vector<at::Tensor> large, small;
  const auto fill = [&] {
    for (std::int64_t i = 0; i < kCount; ++i) {
      large.push_back(at::empty({kBytes}, at::kByte));
      small.push_back(at::empty({16}, at::kByte));
    }
  };
  fill();
  large.clear();
  const std::size_t before = mallinfo2().arena;
  fill();
  EXPECT_LT(mallinfo2().arena - before, kCount * kBytes / 10);
}

}  // namespace
}  // namespace kvatlas::capture
