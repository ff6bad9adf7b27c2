// SPDX-License-Identifier: Apache-2.0
// A test input of any element type and layout, on the host or the device, and the same for the
// reference.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "kernels/base/view.hpp"
#include "tests/support/guarded.hpp"
#include "tests/support/random.hpp"

namespace kvatlas::testing_support {

/// How the elements lie: dense; with the first two axes swapped (as models lay out heads); or every
/// axis padded and the last one strided.
enum class Layout { dense, swapped, strided };

/// An input of a kernel. `view` lies in the asked memory, `host` holds the same elements for the
/// reference.
template <std::size_t N>
class Tensor {
 public:
  AnyView<N> view, host;

  Tensor(const std::vector<float>& values, const std::array<std::int64_t, N>& sizes,
         Memory memory = Memory::host, DType type = DType::f32, Layout layout = Layout::dense) {
    auto order = sizes, steps = dense_strides(sizes);
    if (layout == Layout::swapped && N >= 2) {
      std::swap(order[0], order[1]);
      steps = dense_strides(order);
      std::swap(steps[0], steps[1]);
    }
    if (layout == Layout::strided) {
      for (auto& size : order) size += 3;
      steps = dense_strides(order);
      for (auto& step : steps) step *= 2;
    }
    std::int64_t span = 0;
    for (std::size_t a = 0; a < N; ++a) span += std::max<std::int64_t>(0, sizes[a] - 1) * steps[a];
    std::vector<float> spread(static_cast<std::size_t>(values.empty() ? 0 : span + 1),
                              std::nanf(""));  // what lies between must not be read into results
    std::array<std::int64_t, N> index{};
    for (const float value : values) {
      std::int64_t at = 0;
      for (std::size_t a = 0; a < N; ++a) at += index[a] * steps[a];
      spread[static_cast<std::size_t>(at)] = value;
      for (std::size_t a = N; a-- > 0 && ++index[a] == sizes[a];) index[a] = 0;
    }
    const Encoded encoded(type, spread);
    view = AnyView<N>(place(encoded, memory), type, sizes, steps, memory);
    host = memory == Memory::host ? view
                                  : AnyView<N>(place(encoded, Memory::host), type, sizes, steps);
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

}  // namespace kvatlas::testing_support
