// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <malloc.h>
#include <new>

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

#include "analyzer/capture/tensor_memory_impl.hpp"

namespace kvatlas::capture {
namespace {

constexpr std::size_t kAlignment = 64;
// Larger tensors get pages of their own, which the machine must clear each time; the C library
// takes no larger bound. Of free memory at the end of the heap so much stays with the process.
constexpr int kMostOfHeap = 32 << 20;
constexpr int kMostFree = 1 << 30;

void free_tensor(void* data) {
  if (data) std::free(static_cast<void**>(data)[-1]);
}

/// Memory of the plain heap, aligned by hand. What the heap gave is noted in front of the data.
class TensorMemory : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    void* data = bytes > 0 ? aligned(bytes) : nullptr;
    return {data, data, &free_tensor, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_tensor; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }

 private:
  static void* aligned(std::size_t bytes) {
    if (bytes > std::numeric_limits<std::ptrdiff_t>::max() - kAlignment) throw std::bad_alloc();
    void* const given = std::malloc(bytes + kAlignment);
    if (!given) throw std::bad_alloc();
    static_assert(alignof(std::max_align_t) >= sizeof(void*));  // so there is room for the note
    const std::size_t ahead = kAlignment - reinterpret_cast<std::uintptr_t>(given) % kAlignment;
    void* const data = static_cast<std::byte*>(given) + ahead;
    static_cast<void**>(data)[-1] = given;
    return data;
  }
};

}  // namespace

void reuse_memory_of_tensors() {
  static TensorMemory memory;
  // Of two allocators LibTorch takes the one of the higher priority; its own has 0.
  static const bool once = [] {
    c10::SetCPUAllocator(&memory, 1);
    mallopt(M_MMAP_THRESHOLD, kMostOfHeap);
    mallopt(M_TRIM_THRESHOLD, kMostFree);
    return true;
  }();
  static_cast<void>(once);
}

}  // namespace kvatlas::capture
