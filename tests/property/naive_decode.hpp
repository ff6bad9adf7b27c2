// SPDX-License-Identifier: Apache-2.0
// What a plan means, token by token and in double: the specification that continuations are held
// against. Only the rest of the layer (projections, MLP) is the engine's.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "analyzer/capture/engine.hpp"
#include "calibrate/simulate/plan.hpp"

namespace kvatlas::calibrate {

class NaiveDecode {
 public:
  NaiveDecode(capture::Engine& engine, const capture::Sequence& prompt, std::int64_t n_tokens,
              const Plan& plan);

  /// Runs the next token and gives its logits.
  std::vector<float> step(std::int64_t token);
  /// [layer], tokens of the KV head that holds most.
  std::vector<std::int64_t> lengths() const;
  /// Bytes of what is held, for plans without PoD, MiniCache and shared values.
  double stored_bytes() const;
  /// Of PoD's gates so far.
  std::int64_t gates = 0, skipped = 0;

 private:
  using Row = std::vector<double>;
  /// A query head. Those of a KV head hold the same, unless the plan selects by query head.
  struct Head {
    std::vector<Row> key, value;     // [position]
    std::vector<std::int64_t> held;  // positions, ascending
    std::optional<Proximity> window;
    bool rolling = false;

    /// Whether a window whose last token is `last` holds it.
    bool in_window(std::int64_t j, std::int64_t last) const;
  };
  struct Scored {
    double score;
    const Row* value;
  };

  Head& head(std::int64_t layer, std::int64_t h) { return heads_[layer * config_.n_heads + h]; }
  std::int64_t lowest(std::int64_t layer, std::int64_t h) const;
  bool distant(std::int64_t j) const;
  double score(const Row& query, const Row& key, const capture::ContinuationRows& in) const;
  /// Rounds what a head (its number in heads_) holds of the positions from `begin` to end - 1.
  void quantise(std::size_t number, std::int64_t begin, std::int64_t end);
  KvFormats formats_of(std::size_t number) const {
    return plan_.formats_of(static_cast<std::int64_t>(number) / config_.n_heads);
  }
  void quantise_all(std::int64_t begin, std::int64_t end);
  void merge(Head& lower, Head& upper) const;
  void share_values(std::int64_t layer, std::int64_t h, std::int64_t lowest);
  std::vector<std::int64_t> quest_tokens(const capture::ContinuationRows& in, std::int64_t g,
                                         const std::vector<Row>& queries);
  void attend(const capture::ContinuationRows& in);
  void forget(Head& head) const;
  /// The positions that a head holds and that the last token saw through the model's own window.
  std::vector<std::int64_t> in_reach(std::size_t i) const;
  void cut(Head& head) const;

  // Decoding with a budget (naive_choices.cpp).
  /// What a layer showed since the last choice.
  struct Shown {
    double scale = 1, softcap = 0;
    KeyWindow window = {};
    Row sinks;                              // [head], or none
    std::vector<std::vector<Row>> queries;  // [step][head]
  };
  void choose(std::int64_t layer);
  /// What each of the last `rows` steps attends to of these positions: [step][position].
  std::vector<Row> attention(std::int64_t layer, std::int64_t h, std::int64_t rows,
                             const std::vector<std::int64_t>& positions) const;
  Row choice_scores(std::int64_t layer, std::int64_t g, const std::vector<std::int64_t>& positions);
  Row importance(std::int64_t layer, std::int64_t g,
                 const std::vector<std::int64_t>& positions) const;
  Row expected_attention(std::int64_t layer, std::int64_t h,
                         const std::vector<std::int64_t>& positions) const;
  Row redundancy(std::int64_t layer, std::int64_t g,
                 const std::vector<std::int64_t>& positions) const;

  capture::Engine& engine_;
  const model::Config& config_;
  Plan plan_;
  std::int64_t group_;
  std::int64_t first_, position_;  // of the first generated row, of the next one
  std::int64_t coded_;       // tokens before this one are in the plan's bits, if they go in groups
  std::vector<Head> heads_;  // [layer * query head]
  std::vector<std::vector<Row>> queries_;             // [layer][head], of this step
  std::vector<Shown> shown_;                          // [layer]
  std::vector<std::map<std::int64_t, double>> mass_;  // [layer * KV head], by position
  capture::LayerStates states_;                       // of layers without attention
};

}  // namespace kvatlas::calibrate
