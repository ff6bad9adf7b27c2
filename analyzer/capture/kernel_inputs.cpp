// SPDX-License-Identifier: Apache-2.0
#include <ATen/TensorOperators.h>
#include <ATen/ops/logaddexp.h>

#include "analyzer/capture/kernel_inputs-inl.hpp"

namespace kvatlas::capture {

at::TensorOptions float_on(const AnyView<3>& data) {
  return at::TensorOptions(at::kFloat).device(data.memory == Memory::device ? at::kCUDA : at::kCPU);
}

kernels::LastRows rows_of(const AttentionInputs& in) {
  kernels::LastRows io;
  io.queries = in.query;
  io.keys = in.key;
  io.scale = static_cast<float>(in.scale);
  io.soft_cap = static_cast<float>(in.softcap);
  io.window = in.window;
  io.sinks = in.sinks;
  return io;
}

kernels::LastRows last_rows_of(const AttentionInputs& in, std::int64_t rows) {
  kernels::LastRows io = rows_of(in);
  io.queries.data = static_cast<const char*>(in.query.data) +
                    (in.query.sizes[1] - rows) * in.query.strides[1] * dtype_bytes(in.query.type);
  io.queries.sizes[1] = rows;
  return io;
}

kernels::AttentionMaps maps_of(const AttentionInputs& in,
                               const std::function<at::Tensor()>& lse_room) {
  kernels::AttentionMaps io;
  io.scores = {in.query, in.key, static_cast<float>(in.scale), in.window,
               static_cast<float>(in.softcap)};
  if (in.logsumexp.data) {
    io.lse = {static_cast<const float*>(in.logsumexp.data), in.logsumexp.sizes,
              in.logsumexp.strides, in.logsumexp.memory};
  } else {
    const at::Tensor lse = lse_room();
    kernels::row_logsumexp({io.scores, view_of<float, 2>(lse)});
    if (in.sinks.data) lse.copy_(at::logaddexp(lse, tensor_of(in.sinks).unsqueeze(1)));
    io.lse = view_of<const float, 2>(lse);
  }
  return io;
}

}  // namespace kvatlas::capture
