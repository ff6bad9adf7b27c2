// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include "analyzer/capture/tensors-inl.hpp"

namespace kvatlas::capture {

namespace {

at::Device device_of(Memory memory) { return memory == Memory::device ? at::kCUDA : at::kCPU; }

template <std::size_t N>
at::Tensor of_any(const AnyView<N>& view) {
  const auto type = view.type == DType::f32   ? at::kFloat
                    : view.type == DType::f16 ? at::kHalf
                                              : at::kBFloat16;
  return at::from_blob(const_cast<void*>(view.data), view.sizes, view.strides,
                       at::TensorOptions(type).device(device_of(view.memory)));
}

}  // namespace

at::Tensor tensor_of(const View<const float, 1>& view) {
  return at::from_blob(const_cast<float*>(view.data), view.sizes, view.strides,
                       at::TensorOptions(at::kFloat).device(device_of(view.memory)));
}

at::Tensor tensor_of(const AnyView<2>& view) { return of_any(view); }
at::Tensor tensor_of(const AnyView<3>& view) { return of_any(view); }

void write_tensor(const WriteBytes& write, const at::Tensor& tensor) {
  if (!tensor.defined()) return write_values<std::int64_t>(write, {});
  std::vector<std::int64_t> shape = {static_cast<std::int64_t>(tensor.scalar_type())};
  shape.insert(shape.end(), tensor.sizes().begin(), tensor.sizes().end());
  write_values(write, shape);
  const at::Tensor plain = tensor.cpu().contiguous();
  write({static_cast<const std::byte*>(plain.const_data_ptr()), plain.nbytes()});
}

at::Tensor read_tensor(const ReadBytes& read, const at::Device& device) {
  const auto shape = read_values<std::int64_t>(read);
  if (shape.empty()) return {};
  const at::Tensor plain =
      at::empty(at::IntArrayRef(shape).slice(1), static_cast<at::ScalarType>(shape.front()));
  read({static_cast<std::byte*>(plain.mutable_data_ptr()), plain.nbytes()});
  return plain.to(device);
}

std::int64_t bytes_of(const at::Tensor& tensor) {
  return tensor.defined() ? static_cast<std::int64_t>(tensor.nbytes()) : 0;
}

}  // namespace kvatlas::capture
