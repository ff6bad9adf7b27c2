// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <new>

#include <hwy/aligned_allocator.h>

namespace kvatlas::kernels {

/// `count` uninitialised elements, aligned for the widest vectors; `count` may be 0.
template <class T>
hwy::AlignedFreeUniquePtr<T[]> aligned(std::int64_t count) {
  auto memory = hwy::AllocateAligned<T>(static_cast<std::size_t>(std::max<std::int64_t>(1, count)));
  if (!memory) throw std::bad_alloc();
  return memory;
}

}  // namespace kvatlas::kernels
