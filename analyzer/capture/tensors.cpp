// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/from_blob.h>

#include "analyzer/capture/tensors-inl.hpp"

namespace kvatlas::capture {

namespace {

at::Device device_of(Memory memory) { return memory == Memory::device ? at::kCUDA : at::kCPU; }

}  // namespace

at::Tensor tensor_of(const View<const float, 1>& view) {
  return at::from_blob(const_cast<float*>(view.data), view.sizes, view.strides,
                       at::TensorOptions(at::kFloat).device(device_of(view.memory)));
}

at::Tensor tensor_of(const AnyView<3>& view) {
  const auto type = view.type == DType::f32   ? at::kFloat
                    : view.type == DType::f16 ? at::kHalf
                                              : at::kBFloat16;
  return at::from_blob(const_cast<void*>(view.data), view.sizes, view.strides,
                       at::TensorOptions(type).device(device_of(view.memory)));
}

}  // namespace kvatlas::capture
