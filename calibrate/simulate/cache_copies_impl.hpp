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

/// Where the copied keys and values of one KV head lie: those of its tokens, row after row.
struct CopiedRows {
  std::int64_t start = 0;
  std::shared_ptr<const std::vector<std::int64_t>> tokens;  // positions, ascending

  std::int64_t length() const { return tokens ? static_cast<std::int64_t>(tokens->size()) : 0; }
  /// The rows of the tokens at positions from `begin` to end - 1.
  Range run(std::int64_t begin, std::int64_t end) const {
    if (!tokens || end <= begin) return {start, start};
    const auto first = std::lower_bound(tokens->begin(), tokens->end(), begin);
    const auto last = std::lower_bound(first, tokens->end(), end);
    return {start + (first - tokens->begin()), start + (last - tokens->begin())};
  }
};

/// Copies of keys and values, for plans that select or change them. Each layer has one array for
/// all continuations, which may share rows that are not written again.
class CacheCopies {
 public:
  CacheCopies(const model::Config& config, const at::TensorOptions& options);

  const at::Tensor& keys(std::int64_t layer) const;    // [rows, d]
  const at::Tensor& values(std::int64_t layer) const;  // [rows, d]

  /// Makes room for so many further rows of a layer.
  void reserve(std::int64_t layer, std::int64_t rows);
  /// Copies the tokens tokens[g] of KV head g. Heads without tokens get no rows.
  std::vector<CopiedRows> add(std::int64_t layer, const capture::Sequence::Cache& from,
                              const std::vector<std::vector<std::int64_t>>& tokens);
  /// So many new rows, to be written: the first of them.
  std::int64_t take(std::int64_t layer, std::int64_t rows);
  /// Writes rows [rows, d] from the row `start` on.
  void write(std::int64_t layer, std::int64_t start, const at::Tensor& keys,
             const at::Tensor& values);
  /// Copies a head's rows again, so that one of the two may be changed.
  CopiedRows duplicate(std::int64_t layer, const CopiedRows& rows);

 private:
  struct Layer {
    at::Tensor key, value;  // [capacity, d]
    std::int64_t used = 0;
  };

  const model::Config& config_;
  at::TensorOptions options_;
  std::vector<Layer> layers_;
};

/// Rounds keys, or values, [rows, d], in place, to what the format can store. Where it rounds 32
/// tokens together, the rows are such groups, the first one first. What FP8 and NVFP4 round is
/// divided by `scale` before, and multiplied by it after.
void round_rows(const at::Tensor& rows, KvFormat format, KvSide side, double scale = 1);

}  // namespace kvatlas::calibrate
