// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <tuple>
#include <vector>

#include <ATen/core/Tensor.h>

#include "calibrate/simulate/cache_copies_impl.hpp"
#include "calibrate/simulate/continuations.hpp"
#include "calibrate/simulate/quest_impl.hpp"

namespace kvatlas::calibrate {

using Ranges = std::vector<Range>;  // ascending, none empty
/// Unless it is empty.
void add_range(Ranges& ranges, const Range& range);
Ranges intersect(const Ranges& a, const Ranges& b);

/// Parts of one array of keys and values that rows of the step attend to: up to one run of cached
/// rows a KV head each.
struct Reads {
  /// Row `row` reads runs[g], rows of the array, by KV head g.
  void add(std::int64_t row, const std::vector<Ranges>& runs);

  std::vector<std::int64_t> rows, starts, lengths;  // [part], [part * KV head] twice
};

/// What one row of a step reads in each KV head.
struct HeadRuns {
  explicit HeadRuns(std::int64_t kv_heads)
      : prompt(static_cast<std::size_t>(kv_heads)), copies(prompt), generated(prompt) {}

  std::vector<Ranges> prompt, copies, generated;
};

/// What the rows of a step read of the three arrays that hold a layer's keys.
struct LayerReads {
  void add(std::int64_t row, const HeadRuns& runs);

  Reads prompt, copies, generated;
};

/// Softmax parts of all rows, to be joined by their log-sum-exps.
struct Parts {
  std::vector<at::Tensor> out, lse;   // a call each: [parts, n_heads, d], [parts, n_heads]
  std::vector<std::int64_t> rows;     // of the step
  std::vector<std::uint8_t> distant;  // of a PoD head that borrows its keys
};

struct Continuations::State {
  capture::Engine& engine;
  const capture::Sequence& prompt;
  const model::Config& config;
  std::int64_t n, steps;
  at::TensorOptions options;  // of the cache
  CacheCopies copies;
  QuestPages quest;

  struct Head {
    Ranges ranges;  // of the prompt, read in place
    CopiedRows copied;
    std::optional<Proximity> window;
    bool rolling = false;

    /// The positions that `position` sees: of its own window, and of the model's (0: all).
    Ranges seen_from(std::int64_t position, std::int64_t model_window, std::int64_t first) const;
  };
  struct Layer {
    std::vector<Head> heads;
    std::int64_t generated_from = 0;  // generated rows before it are among the copied ones
  };
  struct Stream {
    std::shared_ptr<const Plan> plan;
    std::int64_t first = 0;  // position of generated row 0
    std::int64_t taken = 0;  // generated rows
    std::vector<Layer> layers;
    /// PoD over copies: [layer, lowest layer, KV head] -> the lowest layer's tokens with its keys
    /// and this layer's values.
    std::map<std::tuple<std::int64_t, std::int64_t, std::int64_t>, CopiedRows> borrowed;
    std::int64_t gates = 0, skipped = 0;
    double read_bytes = 0;

    Layer& layer(std::int64_t l) { return layers[l]; }
    const Layer& layer(std::int64_t l) const { return layers[l]; }
    const Head& head(std::int64_t l, std::int64_t g) const { return layer(l).heads[g]; }
    /// Those of the positions that are generated rows of a layer, as rows.
    Ranges generated(const Ranges& positions, std::int64_t l) const;
    /// The copied rows whose keys are of layer m and whose values are of layer l.
    CopiedRows copied(std::int64_t l, std::int64_t m, std::int64_t g) const;
    /// Whether a query head of KV head g reads distant tokens of layer l by layer m's keys.
    bool shares(std::int64_t l, std::int64_t m, std::int64_t g, std::int64_t group) const;
  };
  std::vector<Stream> streams;
  std::vector<at::Tensor> generated_key, generated_value;  // [layer] of [streams, K, steps, d]

  // Of the step that runs.
  std::vector<Stream*> active;
  at::Tensor generated_index;       // rows of the flat generated arrays, [rows * K]
  std::vector<at::Tensor> queries;  // [layer] of [rows, n_heads, d], kept for PoD

  State(capture::Engine& engine, const capture::Sequence& prompt, std::int64_t n_tokens,
        std::int64_t most_steps);

  std::int64_t K() const { return config.n_kv_heads; }
  std::int64_t group() const { return config.n_heads / config.n_kv_heads; }
  std::int64_t generated_start(const Stream& stream, std::int64_t g) const {
    return ((&stream - streams.data()) * K() + g) * steps;
  }

  void make_room(std::size_t count);
  void copy_prompt(Stream& stream);

  // What a step attends to (continuations_attention.cpp).
  void attend(const capture::ContinuationRows& in);
  void add_own(const capture::ContinuationRows& in, Parts& parts);
  /// Of the positions that are seen, those that KV head g of layer l reads by layer m's keys.
  void add_runs(const Stream& stream, const Ranges& seen, std::int64_t l, std::int64_t m,
                std::int64_t g, HeadRuns& runs) const;
  /// Reads by layer m's keys and this layer's values.
  void read(const LayerReads& reads, std::int64_t m, const capture::ContinuationRows& in,
            Parts& parts) const;
  void read(const Reads& reads, const at::Tensor& query, const AnyView<2>& keys,
            const AnyView<2>& values, const capture::ContinuationRows& in, bool distant,
            Parts& parts) const;
  void join(const Parts& parts, const capture::ContinuationRows& in) const;

  // PoD (pod.cpp).
  void copy_borrowed(Stream& stream);
  void add_borrowed(const capture::ContinuationRows& in, Parts& parts);
  void apply_gates(const capture::ContinuationRows& in, Parts& parts);

  // MiniCache (minicache.cpp).
  void merge_layers(const Stream& stream) const;

  // LagKV (lagkv.cpp): as soon as a partition is complete, the one before it is cut.
  struct Rows {
    at::Tensor keys, values;  // [rows, d]
    std::vector<std::int64_t> positions;
  };
  void cut_further(Stream& stream, std::int64_t tokens);
  Rows gather(const Stream& stream, std::int64_t l, std::int64_t m, std::int64_t g) const;
  std::vector<std::int64_t> rows_kept(const Plan& plan, const Rows& rows) const;
  CopiedRows copy_rows(std::int64_t l, const Rows& rows, const std::vector<std::int64_t>& kept);

  // What is held (continuations_held.cpp).
  std::int64_t length(const Stream& stream, std::int64_t l, std::int64_t g) const;
  double bytes_of_row(const Plan& plan, std::int64_t layer, bool merged) const;
  double stored_bytes(const Stream& stream) const;
};

/// PoD's positions near `position`, and those that are not.
Ranges proximal_to(std::int64_t position, const Proximity& proximal);
Ranges distant_from(std::int64_t position, const Proximity& proximal);
/// Whether MiniCache merges the layer with a neighbour.
bool is_merged(std::int64_t layer, std::int64_t layers);
/// The copied rows of tokens at these positions.
Ranges rows_of(const Ranges& positions, const CopiedRows& copied);
std::int64_t length_of(const Ranges& ranges);

/// [heads, tokens, d] as rows: row g * head_step + token.
AnyView<2> flat(const AnyView<3>& cache);
std::int64_t head_step(const AnyView<3>& cache);

}  // namespace kvatlas::calibrate
