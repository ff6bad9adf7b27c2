// SPDX-License-Identifier: Apache-2.0
// Random inputs for kernels: repeatable, in each element type, and the odd ones.
#pragma once

#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "base/half.hpp"
#include "base/view.hpp"

namespace kvatlas::testing_support {

class Random {
 public:
  explicit Random(std::uint64_t seed) : engine_(seed) {}

  float uniform(float low = 0, float high = 1) {
    return std::uniform_real_distribution<float>(low, high)(engine_);
  }
  float normal() { return std::normal_distribution<float>()(engine_); }
  std::int64_t integer(std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(engine_);
  }
  std::vector<float> normals(std::int64_t count, float scale = 1) {
    std::vector<float> out(static_cast<std::size_t>(count));
    for (auto& value : out) value = scale * normal();
    return out;
  }

  /// One softmax row of `count` values: `spread` 0 is uniform, 10 is nearly one-hot.
  std::vector<float> softmax_row(std::int64_t count, float spread) {
    std::vector<double> weights(static_cast<std::size_t>(count));
    double sum = 0;
    for (auto& w : weights) sum += w = std::exp(static_cast<double>(spread * normal()));
    std::vector<float> out;
    for (double w : weights) out.push_back(static_cast<float>(w / sum));
    return out;
  }

 private:
  std::mt19937_64 engine_;
};

/// `values` in the bits of `type`, and those bits read back: what a kernel must see.
struct Encoded {
  DType type = DType::f32;
  std::vector<std::uint16_t> half;  // for float16 and bfloat16
  std::vector<float> values;

  Encoded(DType dtype, const std::vector<float>& from) : type(dtype), values(from) {
    if (type == DType::f32) return;
    for (auto& value : values) {
      const bool f16 = type == DType::f16;
      half.push_back(f16 ? float_to_f16(value) : float_to_bf16(value));
      value = f16 ? f16_to_float(half.back()) : bf16_to_float(half.back());
    }
  }
};

}  // namespace kvatlas::testing_support
