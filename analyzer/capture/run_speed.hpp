// SPDX-License-Identifier: Apache-2.0
// How long this machine takes to run a model: what commands say before they begin.
#pragma once

#include <cstdint>

#include "analyzer/capture/engine.hpp"

namespace kvatlas::capture {

/// The speed of a model on this machine, from products like those of its layers that are timed when
/// this is made, in less than a second. Nothing of the model runs.
class RunSpeed {
 public:
  RunSpeed(const model::ModelFile& model, const Placement& placement, bool streaming);

  /// Multiply-adds of reading a prompt of so many tokens, its attention counted as as many more as
  /// take the same time.
  double prefill_work(double tokens) const;
  /// Multiply-adds of all scores of such a prompt.
  double score_work(double tokens) const;
  double seconds_of(double work) const { return work / rate_; }

  /// Seconds of reading a prompt.
  double prefill(double tokens) const { return seconds_of(prefill_work(tokens)); }
  /// Seconds of a step in which so many continuations generate a token each. They attend to caches
  /// of so many tokens, of which so many differ.
  double step(double rows, double caches, double tokens) const;
  /// Seconds of decoding all weights once from the model's file. Streamed weights are decoded for
  /// every batch of prompts and for every step, resident ones once.
  double weights() const { return weight_seconds_; }
  bool streaming() const { return streaming_; }

 private:
  void time_products(const model::Config& config, const Placement& placement);
  void time_decoding(const model::ModelFile& model);

  bool streaming_ = false;
  double experts_ = 0, others_ = 0, head_ = 0;  // values of matrices
  double layers_ = 0;
  double used_share_ = 1;      // of the experts, by one token
  double score_products_ = 0;  // multiply-adds of a pair of tokens, in all layers
  double cached_ = 0;          // values of a token in the cache
  double group_ = 1;           // query heads that read each of them
  double rate_ = 1;            // multiply-adds a second of many rows
  double thin_ = 0;            // seconds that a step takes for a value of a matrix, with one row
  double thin_row_ = 0;        // and for each row more
  double weight_seconds_ = 0;
};

}  // namespace kvatlas::capture
