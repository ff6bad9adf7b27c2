// SPDX-License-Identifier: Apache-2.0
// The steps of a layer against their definitions: attention with every mask, in one block of rows
// and in many; and what runs on GPUs, here on the CPU, against the kernels that the CPU has.
#include <cmath>
#include <random>
#include <utility>

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/max.h>
#include <gtest/gtest.h>

#include "analyzer/capture/ops_impl.hpp"

namespace kvatlas::capture {
namespace {

at::Tensor random_tensor(at::IntArrayRef sizes, unsigned seed) {
  at::Tensor out = at::empty(sizes, at::kFloat);
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  float* values = out.mutable_data_ptr<float>();
  for (std::int64_t i = 0; i < out.numel(); ++i) values[i] = normal(random);
  return out;
}

double greatest_difference(const at::Tensor& a, const at::Tensor& b) {
  return (a.to(at::kDouble) - b.to(at::kDouble)).abs().max().item<double>();
}

bool sees(const Attention& io, std::int64_t query, std::int64_t key) {
  if (key > query || key < io.window.first_key(query)) return false;
  return !io.proximal || key < io.proximal->initial || key > query - io.proximal->recent;
}

/// One row at a time, in double.
at::Tensor attended_by_definition(const Attention& io) {
  const std::int64_t heads = io.query.size(0), n = io.query.size(1), dim = io.query.size(2);
  const std::int64_t n_all = io.key.size(1), group = heads / io.key.size(0);
  const auto query = io.query.accessor<float, 3>();
  const auto key = io.key.accessor<float, 3>(), value = io.value.accessor<float, 3>();
  at::Tensor out = at::empty({n, heads * dim}, at::kFloat);
  auto result = out.accessor<float, 2>();
  for (std::int64_t h = 0; h < heads; ++h)
    for (std::int64_t row = 0; row < n; ++row) {
      const std::int64_t position = n_all - n + row;
      std::vector<double> weights(static_cast<std::size_t>(position + 1), 0);
      double sum = 0;
      for (std::int64_t j = 0; j <= position; ++j) {
        if (!sees(io, position, j)) continue;
        double score = 0;
        for (std::int64_t d = 0; d < dim; ++d)
          score +=
              static_cast<double>(query[h][row][d]) * static_cast<double>(key[h / group][j][d]);
        score *= io.scale;
        if (io.softcap > 0) score = io.softcap * std::tanh(score / io.softcap);
        sum += weights[j] = std::exp(score);
      }
      for (std::int64_t d = 0; d < dim; ++d) {
        double mixed = 0;
        for (std::int64_t j = 0; j <= position; ++j)
          mixed += weights[j] / sum * static_cast<double>(value[h / group][j][d]);
        result[row][h * dim + d] = static_cast<float>(mixed);
      }
    }
  return out;
}

/// Of n queries, the last of n_all tokens: 4 heads over 2 KV heads.
Attention attention_of(std::int64_t n, std::int64_t n_all) {
  Attention io;
  io.query = random_tensor({4, n, 16}, 1);
  io.key = random_tensor({2, n_all, 16}, 2);
  io.value = random_tensor({2, n_all, 16}, 3);
  io.scale = 0.4;
  return io;
}

// More rows than a block has, so that the far and the near keys of a block lie apart.
TEST(Attend, EveryMaskAndLength) {
  const std::int64_t n = 1300;
  for (const KeyWindow window :
       {KeyWindow{}, KeyWindow{70}, KeyWindow{70, true}, KeyWindow{1299, true}})
    for (const double softcap : {0.0, 2.0})
      for (const auto& proximal :
           std::initializer_list<std::optional<kernels::Proximity>>{{}, {{4, 28}}, {{600, 28}}}) {
        SCOPED_TRACE(testing::Message()
                     << "window " << window.size << (window.chunks ? " in chunks" : "")
                     << ", soft cap " << softcap << ", " << (proximal ? proximal->initial : -1)
                     << " first");
        for (const std::int64_t queries : {n, std::int64_t{700}, std::int64_t{1}}) {
          Attention io = attention_of(queries, n);
          io.window = window;
          io.softcap = softcap;
          io.proximal = proximal;
          EXPECT_LT(greatest_difference(attend(io).out, attended_by_definition(io)), 2e-5)
              << queries << " queries";
          Attention half = io;
          for (at::Tensor Attention::*part :
               {&Attention::query, &Attention::key, &Attention::value}) {
            half.*part = (io.*part).to(at::kBFloat16);
            io.*part = (half.*part).to(at::kFloat);
          }
          EXPECT_LT(greatest_difference(attend(half).out, attend(io).out), 6.0 / 128)
              << queries << " queries in bfloat16";
        }
      }
}

TEST(Linear, TakesMatricesAsTheyAreAndPacked) {
  for (const auto& [out, in] : {std::pair{1, 1}, {24, 64}, {33, 65}, {960, 576}})
    for (const std::int64_t n : {1, 2, 7, 16, 33}) {
      const at::Tensor rows = random_tensor({n, in}, 10), matrix = random_tensor({out, in}, 11),
                       bias = random_tensor({out}, 12);
      const at::Tensor exact =
          at::matmul(rows.to(at::kDouble), matrix.to(at::kDouble).t()) + bias.to(at::kDouble);
      for (const at::Tensor& as_held : {matrix, packed(matrix)}) {
        const at::Tensor product = linear(rows, as_held, bias);
        ASSERT_EQ(product.sizes(), exact.sizes());
        EXPECT_LT(greatest_difference(product.to(at::kDouble), exact), 2e-5 * in)
            << n << " rows of " << in << " times " << out;
      }
    }
}

TEST(Linear, InBfloat16IsTheRoundedProduct) {
  for (const std::int64_t n : {1, 7, 33}) {
    const at::Tensor rows = random_tensor({n, 64}, 14).to(at::kBFloat16),
                     matrix = random_tensor({40, 64}, 15).to(at::kBFloat16);
    const at::Tensor exact = at::matmul(rows.to(at::kDouble), matrix.to(at::kDouble).t());
    for (const at::Tensor& as_held : {matrix, packed(matrix)})
      EXPECT_LT(greatest_difference(capture::linear(rows, as_held).to(at::kDouble), exact), 0.125)
          << n;
  }
}

TEST(Linear, PacksNothingButMatricesThatTheProcessorMultiplies) {
  const at::Tensor matrix = random_tensor({24, 64}, 13);
  EXPECT_TRUE(at::equal(packed(matrix).to_dense(), matrix));
  const at::Tensor half = matrix.to(at::kHalf), vector = matrix.flatten();
  EXPECT_TRUE(packed(half).is_same(half));
  EXPECT_TRUE(packed(vector).is_same(vector));
}

// float16 is what the CPU's kernels do not take: the operations of GPUs run.
TEST(OpsOfGpus, GiveWhatTheKernelsGive) {
  const auto halved = [](const at::Tensor& tensor) { return tensor.to(at::kHalf); };
  const auto widened = [](const at::Tensor& tensor) { return tensor.to(at::kFloat); };
  constexpr double kRounding = 1.0 / 2048;  // of a float16, relative

  const at::Tensor rows = widened(halved(random_tensor({7, 64}, 4)));
  const at::Tensor weight = widened(halved(random_tensor({64}, 5)));
  for (const double offset : {0.0, 1.0})
    EXPECT_LT(greatest_difference(rms_norm(halved(rows), halved(weight), 1e-6, offset),
                                  rms_norm(rows, weight, 1e-6, offset)),
              16 * kRounding);

  model::RopeFrequencies frequencies;
  frequencies.inverse_frequency = {1.0F, 0.5F, 0.1F, 0.01F};
  const RopeTable table = rope_table(frequencies, 5, 7, at::Device(at::kCPU));
  const at::Tensor heads = widened(halved(random_tensor({7, 3, 12}, 6)));  // 8 of 12 are turned
  at::Tensor by_kernel = heads.clone(), by_operations = halved(heads).clone();
  rotate(by_kernel, table);
  rotate(by_operations, table);
  EXPECT_LT(greatest_difference(by_operations, by_kernel), 4 * kRounding);
  EXPECT_GT(greatest_difference(by_kernel, heads), 0.5);
  EXPECT_EQ(greatest_difference(by_kernel.narrow(-1, 8, 4), heads.narrow(-1, 8, 4)), 0);

  const at::Tensor gate_up = widened(halved(random_tensor({7, 40}, 7)));
  for (const auto activation : {model::Activation::silu, model::Activation::gelu_tanh}) {
    model::Config config;
    config.activation = activation;
    EXPECT_LT(greatest_difference(gated_activation(halved(gate_up), config),
                                  gated_activation(gate_up, config)),
              16 * kRounding);
  }

  const at::Tensor matrix = widened(halved(random_tensor({24, 64}, 8)));
  const at::Tensor bias = widened(halved(random_tensor({24}, 9)));
  for (const auto& added : {bias, at::Tensor()})
    EXPECT_LT(greatest_difference(
                  linear(halved(rows), halved(matrix), added.defined() ? halved(added) : added),
                  linear(rows, matrix, added)),
              64 * kRounding);
}

}  // namespace
}  // namespace kvatlas::capture
