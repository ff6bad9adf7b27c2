// SPDX-License-Identifier: Apache-2.0
// What the parts of SampleCapture share.
#pragma once

#include <initializer_list>
#include <mutex>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "analyzer/capture/kernel_inputs-inl.hpp"
#include "analyzer/capture/ops_impl.hpp"
#include "analyzer/capture/sample_capture.hpp"
#include "kernels/layer_budgets.hpp"

namespace kvatlas::capture {

struct SampleCapture::State {
  const profile::CaptureSettings& settings;
  const model::Config& config;
  std::int64_t n_tokens;
  bool with_maps;
  profile::Sample sample;
  std::mutex making;  // arrays of the sample
  std::vector<profile::Description> arrays;

  at::Tensor held_rows;  // [n_layers, n_heads, rows, n_tokens], the last prompt rows, float32
  std::vector<at::Tensor> column_sums;  // [n_layers] of [n_heads, n_tokens], if they are captured
  std::vector<profile::KeepRule> selections;
  // The tokens of each layer under DynamicKV, by window kind and budget.
  std::vector<std::vector<std::vector<std::int64_t>>> layer_budgets;
  /// The layers of a generated token, of which nothing has been taken yet: on processors that waits
  /// for the last one, so that many layers are worked on at a time. Keys and values lie in the
  /// cache; these are copies of what does not.
  struct Generated {
    AttentionInputs in;
    at::Tensor query, sinks;
  };
  std::vector<Generated> generated;
  std::vector<at::Tensor> buffers;  // used again in every layer
  std::int64_t step = 0;            // number of the generated token that is run

  State(const profile::CaptureSettings& s, const model::Config& c, std::int64_t n, bool maps);

  std::int64_t layers() const { return config.n_layers; }
  std::int64_t group() const { return config.n_heads / config.n_kv_heads; }
  /// Rows that are held for a prompt of n_tokens.
  std::int64_t rows_held() const { return std::min(settings.held_rows(), n_tokens); }

  /// The array of this name. It is made on first use, filled with NaN, or -1 if it holds integers.
  /// Several threads may ask.
  profile::Array& array(const std::string& name, std::vector<std::int64_t> shape = {});
  /// Copies a tensor to the part of an array with these leading indices.
  void store(const at::Tensor& tensor, const std::string& name,
             std::initializer_list<std::int64_t> at = {}, std::vector<std::int64_t> shape = {});

  /// Copies the logarithms of a layer's shares likewise; those below `least` as zero.
  void store_log2(const at::Tensor& shares, const std::string& name, std::int64_t layer,
                  std::vector<std::int64_t> shape, float least = 0x1p-126f);
  /// What is stored a token for the viewer: rounded to bfloat16, half of whose bytes deflate to
  /// nothing, unless maps are exact.
  at::Tensor to_look_at(const at::Tensor& values) const;
  /// Scratch memory that every layer uses again, because fresh pages would cost more time than what
  /// is written there.
  at::Tensor buffer(std::size_t number, at::IntArrayRef shape, const at::TensorOptions& options);

  void add_queries(std::int64_t layer, const AnyView<3>& query);
  void add_rows(const AttentionInputs& in);
  void add_strided_rows(const AttentionInputs& in);
  void add_norms(const AttentionInputs& in);
  void add_ranges(const AttentionInputs& in);
  void add_maps(const AttentionInputs& in);
  void add_raw(const AttentionInputs& in);
  void add_divergence();
  void add_scores();
  void add_next(const std::vector<float>& logits);
  void add_generated(const AttentionInputs& in);
  void add_decode_masses(const AttentionInputs& in);
  void add_kept(const AttentionInputs& in);
};

}  // namespace kvatlas::capture
