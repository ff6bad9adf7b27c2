// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include <ATen/TensorOperators.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/expm1.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/softplus.h>
#include <ATen/ops/where.h>

#include "analyzer/capture/ops_impl.hpp"
#include "base/half.hpp"
#include "base/processor.hpp"
#include "kernels/transformer_ops.hpp"

namespace kvatlas::capture {
namespace {

bool is_float_on_cpu(const at::Tensor& tensor) {
  return tensor.is_cpu() && tensor.scalar_type() == at::kFloat;
}

/// Calls fn with a value of the type that our kernels read the tensor as; false where they do not.
template <class Fn>
bool with_kernel(const at::Tensor& tensor, const Fn& fn) {
  if (is_float_on_cpu(tensor))
    fn(float());
  else if (tensor.is_cpu() && tensor.scalar_type() == at::kBFloat16)
    fn(Bf16());
  else
    return false;
  return true;
}

// oneDNN lays a matrix out by how many rows it will be multiplied with. From 8 on that is the same.
constexpr std::int64_t kRowsOfPacked = 1024;

/// LibTorch's own linear calls MKL, which on some processors is far slower than oneDNN: 117 against
/// 222 GFLOP/s (AMD Zen 4). A LibTorch without oneDNN lacks these operations.
std::optional<c10::OperatorHandle> one_dnn_operation(const char* name) {
  return c10::Dispatcher::singleton().findSchema({name, ""});
}

}  // namespace

bool has_product(const at::Tensor& tensor) {
  static const bool has_pairs =
      !processor().bfloat16().empty() && one_dnn_operation("mkldnn::_linear_pointwise");
  return is_float_on_cpu(tensor) ||
         (has_pairs && tensor.is_cpu() && tensor.scalar_type() == at::kBFloat16);
}

at::Tensor packed(const at::Tensor& weight) {
  static const auto pack = one_dnn_operation("mkldnn::_reorder_linear_weight");
  if (!pack || !has_product(weight) || weight.dim() != 2) return weight;
  torch::jit::Stack stack{weight, kRowsOfPacked};
  pack->callBoxed(stack);
  return stack.front().toTensor();
}

at::Tensor linear(const at::Tensor& rows, const at::Tensor& weight, const at::Tensor& bias) {
  static const auto multiply = one_dnn_operation("mkldnn::_linear_pointwise");
  if (!multiply || !has_product(rows)) return at::linear(rows, weight, bias);
  // Nothing is done to the product afterwards: no scalars, no algorithm.
  torch::jit::Stack stack{rows,
                          weight,
                          bias.defined() ? c10::IValue(bias) : c10::IValue(),
                          "none",
                          c10::List<std::optional<at::Scalar>>(),
                          c10::IValue()};
  multiply->callBoxed(stack);
  return stack.front().toTensor();
}

at::Tensor rms_norm(const at::Tensor& rows, const at::Tensor& weight, double eps, double offset) {
  at::Tensor out;
  const auto by_kernel = [&]<class T>(T) {
    out = at::empty(rows.sizes(), rows.options());
    kernels::rms_norm<T>({.rows = view_of<const T, 2>(rows),
                          .weight = static_cast<const T*>(weight.const_data_ptr()),
                          .eps = static_cast<float>(eps),
                          .offset = static_cast<float>(offset),
                          .out = view_of<T, 2>(out)});
  };
  if (with_kernel(rows, by_kernel)) return out;
  const at::Tensor x = rows.to(at::kFloat);
  const at::Tensor factor = at::rsqrt(x.pow(2).mean(-1, true) + eps);
  return (x * factor * (weight.to(at::kFloat) + offset)).to(rows.scalar_type());
}

at::Tensor norm(const at::Tensor& rows, const at::Tensor& weight, const at::Tensor& bias,
                const model::Config& config) {
  if (!weight.defined()) return rows;
  if (config.norm == model::NormKind::rms)
    return rms_norm(rows, weight, config.norm_eps, config.norm_offset);
  const at::Tensor factor = weight.to(at::kFloat) + config.norm_offset;
  const at::Tensor shift = bias.defined() ? bias.to(at::kFloat) : at::Tensor();
  return at::layer_norm(rows.to(at::kFloat), {rows.size(-1)}, factor, shift, config.norm_eps)
      .to(rows.scalar_type());
}

RopeTable rope_table(const model::RopeFrequencies& frequencies, std::int64_t first, std::int64_t n,
                     const at::Device& device) {
  const auto half = static_cast<std::int64_t>(frequencies.inverse_frequency.size());
  RopeTable table{at::empty({n, half}, at::kFloat), at::empty({n, half}, at::kFloat)};
  float* cosine = table.cosine.mutable_data_ptr<float>();
  float* sine = table.sine.mutable_data_ptr<float>();
  for (std::int64_t row = 0; row < n; ++row) {
    for (std::int64_t i = 0; i < half; ++i) {
      // The angle is rounded to float32, as the models were trained with.
      const float angle = static_cast<float>(first + row) * frequencies.inverse_frequency[i];
      *cosine++ = std::cos(angle) * frequencies.scale;
      *sine++ = std::sin(angle) * frequencies.scale;
    }
  }
  return {table.cosine.to(device), table.sine.to(device)};
}

void rotate(const at::Tensor& heads, const RopeTable& table) {
  const auto by_kernel = [&]<class T>(T) {
    kernels::rotate<T>({view_of<T, 3>(heads), view_of<const float, 2>(table.cosine),
                        view_of<const float, 2>(table.sine)});
  };
  if (with_kernel(heads, by_kernel)) return;
  const std::int64_t half = table.cosine.size(1);
  const at::Tensor c = table.cosine.unsqueeze(1), s = table.sine.unsqueeze(1);
  const at::Tensor a = heads.narrow(-1, 0, half).to(at::kFloat);
  const at::Tensor b = heads.narrow(-1, half, half).to(at::kFloat);
  heads.narrow(-1, 0, 2 * half).copy_(at::cat({a * c - b * s, b * c + a * s}, -1));
}

at::Tensor activated(const at::Tensor& rows, model::Activation activation,
                     const at::Tensor& parameters) {
  switch (activation) {
    case model::Activation::silu:
      return at::silu(rows);
    case model::Activation::gelu_tanh:
      return at::gelu(rows, "tanh");
    case model::Activation::gelu:
      return at::gelu(rows);
    case model::Activation::relu2:
      return at::relu(rows).square();
    case model::Activation::clamped_swiglu:  // is gated
      break;
    case model::Activation::xielu: {
      const at::Tensor beta = parameters[2], eps = parameters[3],
                       above = at::softplus(parameters[0]),
                       below = beta + at::softplus(parameters[1]);
      const at::Tensor linear = beta * rows;
      return at::where(rows > 0, above * rows.square() + linear,
                       (at::expm1(rows.minimum(eps)) - rows) * below + linear);
    }
  }
  return rows;
}

at::Tensor gated_activation(const at::Tensor& gate_up, const model::Config& config) {
  const model::Activation activation = config.activation;
  const std::int64_t width = gate_up.size(1) / 2;
  const bool gelu = activation == model::Activation::gelu_tanh;
  at::Tensor out;
  const auto by_kernel = [&]<class T>(T) {
    out = at::empty({gate_up.size(0), width}, gate_up.options());
    kernels::gated_activation<T>({view_of<const T, 2>(gate_up), gelu, view_of<T, 2>(out)});
  };
  if ((gelu || activation == model::Activation::silu) && with_kernel(gate_up, by_kernel))
    return out;
  const at::Tensor gate = gate_up.narrow(1, 0, width), up = gate_up.narrow(1, width, width);
  if (activation == model::Activation::clamped_swiglu) {
    const double limit = config.swiglu_limit;
    const at::Tensor clamped = gate.clamp_max(limit);
    return clamped * at::sigmoid(clamped * config.swiglu_alpha) * (up.clamp(-limit, limit) + 1);
  }
  return activated(gate, activation) * up;
}

}  // namespace kvatlas::capture
