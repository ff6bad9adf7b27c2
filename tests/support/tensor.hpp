// SPDX-License-Identifier: Apache-2.0
// Test inputs and outputs of any element type and layout, on the host or the device.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "base/view.hpp"
#include "tests/support/guarded.hpp"
#include "tests/support/random.hpp"

namespace kvatlas::testing_support {

/// How the elements lie: dense; with the first two axes swapped (as models lay out heads); or every
/// axis padded and the last one strided.
enum class Layout { dense, swapped, strided };

template <std::size_t N>
std::array<std::int64_t, N> strides_of(const std::array<std::int64_t, N>& sizes, Layout layout) {
  auto order = sizes;
  if (layout == Layout::swapped && N >= 2) {
    std::swap(order[0], order[1]);
    auto steps = dense_strides(order);
    std::swap(steps[0], steps[1]);
    return steps;
  }
  if (layout == Layout::dense) return dense_strides(sizes);
  for (auto& size : order) size += 3;
  auto steps = dense_strides(order);
  for (auto& step : steps) step *= 2;
  return steps;
}

/// Elements from the first to the last, those between them included.
template <std::size_t N>
std::int64_t span_of(const std::array<std::int64_t, N>& sizes,
                     const std::array<std::int64_t, N>& strides) {
  std::int64_t last = 0;
  for (std::size_t a = 0; a < N; ++a) {
    if (sizes[a] == 0) return 0;
    last += (sizes[a] - 1) * strides[a];
  }
  return last + 1;
}

/// Calls visit(offset) for every element, in row-major order.
template <std::size_t N, class Visit>
void for_offsets(const std::array<std::int64_t, N>& sizes,
                 const std::array<std::int64_t, N>& strides, Visit&& visit) {
  std::int64_t count = 1;
  for (const std::int64_t size : sizes) count *= size;
  std::array<std::int64_t, N> index{};
  for (std::int64_t i = 0; i < count; ++i) {
    std::int64_t offset = 0;
    for (std::size_t a = 0; a < N; ++a) offset += index[a] * strides[a];
    visit(offset);
    for (std::size_t a = N; a-- > 0 && ++index[a] == sizes[a];) index[a] = 0;
  }
}

/// An input of a kernel. `view` lies in the asked memory, `host` holds the same elements for the
/// reference.
template <std::size_t N>
class Tensor {
 public:
  AnyView<N> view, host;

  Tensor(const std::vector<float>& values, const std::array<std::int64_t, N>& sizes,
         Memory memory = Memory::host, DType type = DType::f32, Layout layout = Layout::dense) {
    const auto strides = strides_of(sizes, layout);
    std::vector<float> spread(static_cast<std::size_t>(span_of(sizes, strides)),
                              std::nanf(""));  // what lies between must not be read into results
    auto next = values.begin();
    for_offsets(sizes, strides, [&](std::int64_t offset) { spread[offset] = *next++; });
    const Encoded encoded(type, spread);
    view = AnyView<N>(place(encoded, memory), type, sizes, strides, memory);
    host = memory == Memory::host ? view
                                  : AnyView<N>(place(encoded, Memory::host), type, sizes, strides);
  }

 private:
  const void* place(const Encoded& encoded, Memory memory) {
    if (encoded.type == DType::f32)
      return floats_.emplace_back(std::make_unique<Guarded<float>>(encoded.values, memory))->data();
    return halves_.emplace_back(std::make_unique<Guarded<std::uint16_t>>(encoded.half, memory))
        ->data();
  }
  std::vector<std::unique_ptr<Guarded<float>>> floats_;
  std::vector<std::unique_ptr<Guarded<std::uint16_t>>> halves_;
};

/// An output of a kernel, -7 (or `fill`) until written.
template <class T, std::size_t N>
class Output {
 public:
  View<T, N> view;

  explicit Output(const std::array<std::int64_t, N>& sizes, Memory memory = Memory::host,
                  Layout layout = Layout::dense, T fill = static_cast<T>(-7))
      : fill_(fill), block_(span_of(sizes, strides_of(sizes, layout)), fill, memory) {
    view = {block_.data(), sizes, strides_of(sizes, layout), memory};
  }

  /// The elements in row-major order. Nothing around or between them may have changed.
  std::vector<T> values() const {
    EXPECT_TRUE(block_.intact()) << "a write outside the output";
    auto all = block_.values();
    std::vector<T> out;
    for_offsets(view.sizes, view.strides,
                [&](std::int64_t offset) { out.push_back(std::exchange(all[offset], fill_)); });
    EXPECT_TRUE(std::all_of(all.begin(), all.end(), [&](T value) { return value == fill_; }))
        << "a write between the elements of the output";
    return out;
  }

 private:
  T fill_;
  Guarded<T> block_;
};

}  // namespace kvatlas::testing_support
