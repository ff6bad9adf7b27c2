// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/from_blob.h>

#include "analyzer/capture/tensors-inl.hpp"

namespace kvatlas::capture {

at::Tensor tensor_of(const AnyView<3>& view) {
  const auto type = view.type == DType::f32   ? at::kFloat
                    : view.type == DType::f16 ? at::kHalf
                                              : at::kBFloat16;
  const auto device = view.memory == Memory::device ? at::kCUDA : at::kCPU;
  return at::from_blob(const_cast<void*>(view.data), view.sizes, view.strides,
                       at::TensorOptions(type).device(device));
}

}  // namespace kvatlas::capture
