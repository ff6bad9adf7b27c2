// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace kvatlas {

/// Where the memory of a view lies. Nothing is ever copied between the two behind the caller's
/// back.
enum class Memory : std::uint8_t { host, device };

/// The element types that kernels read.
enum class DType : std::uint8_t { f32, f16, bf16 };

constexpr std::int64_t dtype_bytes(DType type) { return type == DType::f32 ? 4 : 2; }
constexpr const char* dtype_name(DType type) {
  return type == DType::f32 ? "float32" : type == DType::f16 ? "float16" : "bfloat16";
}

/// Strides (in elements) of a dense row-major array.
template <std::size_t N>
constexpr std::array<std::int64_t, N> dense_strides(const std::array<std::int64_t, N>& sizes) {
  std::array<std::int64_t, N> strides{};
  std::int64_t step = 1;
  for (std::size_t i = N; i-- > 0;) {
    strides[i] = step;
    step *= sizes[i];
  }
  return strides;
}

/// An array of N dimensions that belongs to somebody else: a pointer, the sizes, the strides in
/// elements, and where the memory lies.
template <class T, std::size_t N>
struct View {
  T* data = nullptr;
  std::array<std::int64_t, N> sizes{};
  std::array<std::int64_t, N> strides{};
  Memory memory = Memory::host;

  View() = default;
  View(T* pointer, const std::array<std::int64_t, N>& shape, Memory where = Memory::host)
      : data(pointer), sizes(shape), strides(dense_strides(shape)), memory(where) {}
  View(T* pointer, const std::array<std::int64_t, N>& shape,
       const std::array<std::int64_t, N>& steps, Memory where = Memory::host)
      : data(pointer), sizes(shape), strides(steps), memory(where) {}

  /// A view of the same memory that promises not to write.
  operator View<const T, N>() const requires(!std::is_const_v<T>) {
    return {data, sizes, strides, memory};
  }

  template <class... Index>
  T* at(Index... index) const {
    static_assert(sizeof...(Index) <= N);
    std::int64_t offset = 0;
    std::size_t axis = 0;
    ((offset += static_cast<std::int64_t>(index) * strides[axis++]), ...);
    return data + offset;
  }
  template <class... Index>
  T& operator()(Index... index) const {
    static_assert(sizeof...(Index) == N);
    return *at(index...);
  }
  std::int64_t count() const {
    std::int64_t total = 1;
    for (auto size : sizes) total *= size;
    return total;
  }
};

/// The same, read-only, for arrays whose element type is known only when the program runs.
template <std::size_t N>
struct AnyView {
  const void* data = nullptr;
  DType type = DType::f32;
  std::array<std::int64_t, N> sizes{};
  std::array<std::int64_t, N> strides{};
  Memory memory = Memory::host;

  AnyView() = default;
  AnyView(View<const float, N> v)
      : data(v.data), sizes(v.sizes), strides(v.strides), memory(v.memory) {}
  AnyView(View<float, N> v) : AnyView(View<const float, N>(v)) {}
  AnyView(const void* pointer, DType dtype, const std::array<std::int64_t, N>& shape,
          const std::array<std::int64_t, N>& steps, Memory where = Memory::host)
      : data(pointer), type(dtype), sizes(shape), strides(steps), memory(where) {}
};

}  // namespace kvatlas
