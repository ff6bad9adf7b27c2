// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "base/view.hpp"

namespace kvatlas::testing_support {

/// `bytes` bytes on the host or the device, freed with the pointer.
std::shared_ptr<void> allocate(std::int64_t bytes, Memory memory);
/// Copies between any two of host and device, after all that was launched before.
void copy_bytes(void* to, const void* from, std::int64_t bytes);

/// An array for a kernel, on the host or the device, between two guard zones that it must leave
/// alone.
template <class T>
class Guarded {
 public:
  explicit Guarded(const std::vector<T>& values, Memory memory = Memory::host)
      : count_(static_cast<std::int64_t>(values.size())),
        memory_(memory),
        block_(allocate((count_ + 2 * kGuard) * kSize, memory)) {
    std::vector<unsigned char> bytes(static_cast<std::size_t>((count_ + 2 * kGuard) * kSize),
                                     kMark);
    if (count_ > 0)
      std::memcpy(bytes.data() + kGuard * kSize, values.data(),
                  static_cast<std::size_t>(count_ * kSize));
    copy_bytes(block_.get(), bytes.data(), static_cast<std::int64_t>(bytes.size()));
  }
  /// An output: `count` elements, all of them `fill` until written.
  Guarded(std::int64_t count, T fill, Memory memory = Memory::host)
      : Guarded(std::vector<T>(static_cast<std::size_t>(count), fill), memory) {}

  T* data() const { return static_cast<T*>(block_.get()) + kGuard; }
  Memory memory() const { return memory_; }

  std::vector<T> values() const {
    std::vector<T> out(static_cast<std::size_t>(count_));
    if (count_ > 0) copy_bytes(out.data(), data(), count_ * kSize);
    return out;
  }
  /// Whether the guard zones are untouched.
  bool intact() const {
    std::vector<unsigned char> bytes(static_cast<std::size_t>((count_ + 2 * kGuard) * kSize));
    copy_bytes(bytes.data(), block_.get(), static_cast<std::int64_t>(bytes.size()));
    for (std::int64_t i = 0; i < kGuard * kSize; ++i)
      if (bytes[i] != kMark || bytes[bytes.size() - 1 - static_cast<std::size_t>(i)] != kMark)
        return false;
    return true;
  }

 private:
  static constexpr std::int64_t kGuard = 64, kSize = sizeof(T);
  static constexpr unsigned char kMark = 0xa5;
  std::int64_t count_;
  Memory memory_;
  std::shared_ptr<void> block_;
};

}  // namespace kvatlas::testing_support
