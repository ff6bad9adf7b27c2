// SPDX-License-Identifier: Apache-2.0
// LibTorch's tensors as the kernels' views, and back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

#include "analyzer/capture/engine.hpp"
#include "base/view.hpp"

namespace kvatlas::capture {

/// The kernels' view as a tensor of the same memory.
at::Tensor tensor_of(const AnyView<2>& view);
at::Tensor tensor_of(const AnyView<3>& view);
at::Tensor tensor_of(const View<const float, 1>& view);

/// A view that a kernel may write, or read with a known type.
template <class T, std::size_t N>
View<T, N> view_of(const at::Tensor& tensor) {
  View<T, N> view;
  view.data = static_cast<T*>(tensor.data_ptr());
  for (std::size_t i = 0; i < N; ++i) {
    view.sizes[i] = tensor.size(static_cast<std::int64_t>(i));
    view.strides[i] = tensor.stride(static_cast<std::int64_t>(i));
  }
  view.memory = tensor.is_cuda() ? Memory::device : Memory::host;
  return view;
}

/// A tensor as the kernels see it.
template <std::size_t N>
AnyView<N> any_view(const at::Tensor& tensor) {
  AnyView<N> view;
  view.data = tensor.const_data_ptr();
  view.type = tensor.scalar_type() == at::kFloat  ? DType::f32
              : tensor.scalar_type() == at::kHalf ? DType::f16
                                                  : DType::bf16;
  for (std::size_t i = 0; i < N; ++i) {
    view.sizes[i] = tensor.size(static_cast<std::int64_t>(i));
    view.strides[i] = tensor.stride(static_cast<std::int64_t>(i));
  }
  view.memory = tensor.is_cuda() ? Memory::device : Memory::host;
  return view;
}

/// Plain values as bytes, and back.
template <class T>
void write_values(const WriteBytes& write, const std::vector<T>& values) {
  const std::uint64_t count = values.size();
  write(std::as_bytes(std::span(&count, 1)));
  write(std::as_bytes(std::span(values)));
}
template <class T>
std::vector<T> read_values(const ReadBytes& read) {
  std::uint64_t count = 0;
  read(std::as_writable_bytes(std::span(&count, 1)));
  std::vector<T> values(count);
  read(std::as_writable_bytes(std::span(values)));
  return values;
}

/// A tensor as bytes: its type, its sizes and its values; and back, to lie on `device`. An
/// undefined one stays undefined.
void write_tensor(const WriteBytes& write, const at::Tensor& tensor);
at::Tensor read_tensor(const ReadBytes& read, const at::Device& device);
std::int64_t bytes_of(const at::Tensor& tensor);

}  // namespace kvatlas::capture
