// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <tuple>
#include <vector>

#include <ATen/core/Tensor.h>

#include "calibrate/simulate/cache_copies_impl.hpp"
#include "calibrate/simulate/continuations.hpp"
#include "calibrate/simulate/held_heads_impl.hpp"
#include "calibrate/simulate/quest_impl.hpp"
#include "calibrate/simulate/ranges_impl.hpp"

namespace kvatlas::calibrate {

/// What the rows of a step read of one array of keys and values. It is cut into parts: a part is of
/// one row, and has at most one run of consecutive array rows for each KV head.
struct Reads {
  /// Row `row` reads the array rows runs[g] in KV head g.
  void add(std::int64_t row, const std::vector<Ranges>& runs);

  std::vector<std::int64_t> rows;             // [part]
  std::vector<std::int64_t> starts, lengths;  // [part * KV head]
};

/// What one row of a step reads: for each KV head, the rows of the three arrays that hold keys.
struct HeadRuns {
  explicit HeadRuns(std::int64_t kv_heads)
      : prompt(static_cast<std::size_t>(kv_heads)), copies(prompt), generated(prompt) {}

  std::vector<Ranges> prompt, copies, generated;
};

/// What all rows of a step read of the three arrays that hold a layer's keys.
struct LayerReads {
  void add(std::int64_t row, const HeadRuns& runs);

  Reads prompt, copies, generated;
};

/// The attention on each part, before the parts of a row are joined by their log-sum-exps.
struct Parts {
  std::vector<at::Tensor> out, lse;   // of each call: [parts, n_heads, d] and [parts, n_heads]
  std::vector<std::int64_t> rows;     // [part]: the row of the step
  std::vector<std::uint8_t> distant;  // [part]: 1 if its keys are borrowed (PoD)
};

struct Continuations::State {
  capture::Engine& engine;
  const capture::Sequence& prompt;
  const model::Config& config;
  CacheShape cache_sizes;
  std::int64_t n, steps;
  at::TensorOptions options;               // of the cache
  std::vector<std::int64_t> prompt_steps;  // [layer]: head_step() of the prompt's cache
  CacheCopies copies;
  QuestPages quest;

  struct Head {
    Ranges ranges;  // of the prompt, read in place
    CopiedRows copied;
    std::vector<CopiedRows> by_query_head;  // where each query head keeps tokens of its own
    std::optional<Proximity> window;
    bool rolling = false;
    std::int64_t generated_from = 0;  // generated rows before this one have been copied
    // Where a budget is held while decoding (decoding.cpp): the first of the rows that nobody else
    // reads, which are written anew, and as in HeldHead.
    std::optional<std::int64_t> own_rows = {};
    std::vector<float> mass = {};
    // Positions, ascending, whose keys and whose values are merged with another layer's
    // (minicache.cpp).
    std::vector<std::int64_t> merged_keys = {}, merged_values = {};

    std::vector<const CopiedRows*> all_copied() const;
    /// The positions that a token at `position` sees through the plan's window and the model's own.
    Ranges seen_from(std::int64_t position, KeyWindow model_window, std::int64_t first) const;
  };
  struct Layer {
    std::vector<Head> heads;
    at::Tensor last_queries = {};  // [n_heads, rows, d], where a budget is held while decoding
  };
  struct Stream {
    std::shared_ptr<const Plan> plan;
    std::int64_t first = 0;            // position of the first generated row
    std::int64_t taken = 0;            // number of generated rows
    std::vector<std::int64_t> tokens;  // that it has read so far
    /// [earlier stream]: the first layer in which the two plans may differ.
    std::vector<std::int64_t> apart;
    std::vector<Layer> layers;
    capture::LayerStates states;  // of layers without attention
    /// For PoD where tokens are copied: [layer, lowest layer of the block, KV head] to the tokens
    /// of the lowest layer, with its keys and the layer's values.
    std::map<std::tuple<std::int64_t, std::int64_t, std::int64_t>, CopiedRows> borrowed;
    std::int64_t gates = 0, skipped = 0;
    StepBytes bytes;  // of the last step

    Layer& layer(std::int64_t l) { return layers[l]; }
    const Layer& layer(std::int64_t l) const { return layers[l]; }
    const Head& head(std::int64_t l, std::int64_t g) const { return layer(l).heads[g]; }
    /// The generated rows of KV head g of a layer that are at these positions.
    Ranges generated(const Ranges& positions, std::int64_t l, std::int64_t g) const;
    /// How many tokens at these positions KV head g of a layer holds; where its query heads keep
    /// tokens of their own, the one of them that holds most.
    std::int64_t held(const Ranges& positions, std::int64_t l, std::int64_t g) const;
    /// How many it stores: those of all its query heads, where they keep tokens of their own.
    std::int64_t stored(const Ranges& positions, std::int64_t l, std::int64_t g) const;
    /// The copied rows with keys of layer m and values of layer l.
    const CopiedRows& copied(std::int64_t l, std::int64_t m, std::int64_t g) const;
    /// Whether some query head of KV head g scores the distant tokens of layer l by layer m's keys.
    bool shares(std::int64_t l, std::int64_t m, std::int64_t g, std::int64_t group) const;
  };
  std::vector<Stream> streams;
  std::vector<at::Tensor> generated_key, generated_value;  // [layer] of [streams, K, steps, d]

  // The step that runs.
  std::vector<Stream*> stepping;
  std::vector<Stream*> active;  // those that are rows of their own in the layer that runs
  at::Tensor generated_index;   // [rows * K]: where the step writes in the generated arrays, flat
  std::vector<at::Tensor> queries;               // [layer] of [rows, n_heads, d], kept for PoD
  std::vector<std::optional<Scoring>> scorings;  // [layer], where a stream holds a budget

  State(capture::Engine& engine, const capture::Sequence& prompt, std::int64_t n_tokens,
        std::int64_t most_steps);

  std::int64_t K() const { return config.n_kv_heads; }
  /// What the cache keeps for the model's own window in a layer: of chunks, room for a whole one.
  KeyWindow own_window(std::int64_t l) const { return {config.window[l]}; }
  std::int64_t group() const { return config.n_heads / config.n_kv_heads; }
  std::int64_t generated_start(const Stream& stream, std::int64_t g) const {
    return ((&stream - streams.data()) * K() + g) * steps;
  }

  // What is alike is computed once (continuations_alike.cpp).
  std::int64_t apart_from(const Plan& a, const Plan& b) const;
  /// The streams in the order of their branches, and these.
  std::vector<std::size_t> find_branches(std::span<const std::size_t> which,
                                         std::vector<capture::Branch>& branches) const;

  void make_room(std::size_t count);
  void copy_prompt(Stream& stream);
  void duplicate_copies(Stream& stream);

  // What a step attends to (continuations_attention.cpp).
  void attend(const capture::ContinuationRows& in);
  void add_own(const capture::ContinuationRows& in, Parts& parts);
  void add_by_query_head(const capture::ContinuationRows& in, Parts& parts);
  /// Reads, and lets only those query heads see the parts for which visible(stream, head) holds.
  void read_for(const LayerReads& reads, std::int64_t m, const capture::ContinuationRows& in,
                const std::function<bool(const Stream&, std::int64_t)>& visible, Parts& parts);
  /// Adds what KV head g of layer l reads by layer m's keys: the seen positions that it holds.
  void add_runs(const Stream& stream, const Ranges& seen, std::int64_t l, std::int64_t m,
                std::int64_t g, HeadRuns& runs) const;
  /// Attends to these parts by layer m's queries and keys and this layer's values.
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

  // Fewer bits (continuations_bits.cpp): tokens are rounded to codes, group after group.
  void code(Stream& stream, const Range& positions);
  void code_rows(Stream& stream, const Range& positions, std::int64_t l, std::int64_t m,
                 std::int64_t g, const CopiedRows& copied);
  void code_further(Stream& stream, std::int64_t tokens);
  /// Rounds what a step adds to a layer, [rows * K, d], in place.
  void round_generated(std::int64_t l, KvSide side, const at::Tensor& rows);

  // What layers hold together (minicache.cpp, share_values.cpp).
  void merge_layers(Stream& stream) const;
  void share_values(const Stream& stream) const;

  // What a head holds, to be cut.
  struct Rows {
    at::Tensor keys, values;  // [rows, d]
    std::vector<std::int64_t> positions;
  };
  // Budgets that hold while decoding (decoding.cpp): the best tokens are chosen again and again.
  void remember_queries(const capture::ContinuationRows& in);
  void choose_anew(Stream& stream);
  std::int64_t most_rows(const Decoding& part) const;  // that a head may be left
  void keep_rows(Stream& stream, std::int64_t l, std::int64_t g, const Rows& rows,
                 const std::vector<std::int64_t>& kept);
  /// Two streams read the same copies, so that neither may write them.
  void share_copies(Stream& stream, Stream& fork) const;
  /// How many rows for copies a continuation of the plan takes in a layer; a fork, as many more.
  std::int64_t rows_for(const Plan& plan, std::int64_t layer, bool forks) const;

  // LagKV (lagkv.cpp): as soon as a partition is complete, the one before it is cut.
  void cut_further(Stream& stream, std::int64_t tokens);
  Rows gather(const Stream& stream, std::int64_t l, std::int64_t m, std::int64_t g) const;
  std::vector<std::int64_t> rows_kept(const Plan& plan, const Rows& rows) const;
  CopiedRows copy_rows(std::int64_t l, const Rows& rows, const std::vector<std::int64_t>& kept);

  // What is held (continuations_held.cpp).
  std::int64_t length(const Stream& stream, std::int64_t l, std::int64_t g) const;
  double bytes_of_row(KvFormat format, KvSide side, bool merged) const;
  double stored_bytes(const Stream& stream) const;
};

/// The positions that PoD counts as near `position`, and those that it counts as distant.
Ranges proximal_to(std::int64_t position, const Proximity& proximal);
Ranges distant_from(std::int64_t position, const Proximity& proximal);
/// The copied rows of tokens at these positions.
Ranges rows_of(const Ranges& positions, const CopiedRows& copied);

/// The cache [heads, tokens, d] as rows: token t of head g is row g * head_step + t.
AnyView<2> flat(const AnyView<3>& cache);
std::int64_t head_step(const AnyView<3>& cache);

}  // namespace kvatlas::calibrate
