// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "analyzer/capture/engine.hpp"
#include "calibrate/simulate/plan.hpp"

namespace kvatlas::calibrate {

/// Copied rows of one KV head: the tokens' keys and values, one after the other.
struct CopiedRows {
  std::int64_t start = 0;
  std::shared_ptr<const std::vector<std::int64_t>> tokens;  // ascending

  std::int64_t length() const { return tokens ? static_cast<std::int64_t>(tokens->size()) : 0; }
  /// The rows of tokens begin .. end - 1.
  Range run(std::int64_t begin, std::int64_t end) const {
    if (!tokens || end <= begin) return {start, start};
    const auto first = std::lower_bound(tokens->begin(), tokens->end(), begin);
    const auto last = std::lower_bound(first, tokens->end(), end);
    return {start + (first - tokens->begin()), start + (last - tokens->begin())};
  }
};

/// Rows that plans select or change, one array a layer for all continuations. Nothing is ever
/// written twice, so that continuations may share them.
class CacheCopies {
 public:
  CacheCopies(const model::Config& config, const at::TensorOptions& options);

  const at::Tensor& keys(std::int64_t layer) const;    // [rows, d]
  const at::Tensor& values(std::int64_t layer) const;  // likewise

  /// Makes room for so many more rows of a layer.
  void reserve(std::int64_t layer, std::int64_t rows);
  /// Copies tokens[g] of KV head g; heads without tokens get no rows.
  std::vector<CopiedRows> add(std::int64_t layer, const capture::Sequence::Cache& from,
                              const std::vector<std::vector<std::int64_t>>& tokens);
  /// What 4 or 2 bits make of a head's rows, in place.
  void quantise(std::int64_t layer, const CopiedRows& head, int bits);

 private:
  struct Layer {
    at::Tensor key, value;  // [capacity, d]
    std::int64_t used = 0;
  };

  const model::Config& config_;
  at::TensorOptions options_;
  std::vector<Layer> layers_;
};

}  // namespace kvatlas::calibrate
