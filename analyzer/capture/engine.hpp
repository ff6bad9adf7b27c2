// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "analyzer/capture/device.hpp"
#include "analyzer/model/model_file.hpp"
#include "base/error.hpp"
#include "base/key_window.hpp"
#include "base/view.hpp"
#include "kernels/last_rows.hpp"

// The forward pass. Open a ModelFile, make an Engine, give each prompt a Sequence, and run():
//
//   Engine engine(model, {});
//   Sequence prompt = engine.sequence();
//   const Engine::Step step{&prompt, tokens};
//   engine.run({&step, 1}, Logits::last);
//   prompt.logits();                                // of the last token, [vocab_size]
//
// run() takes all sequences through layer l before layer l + 1, so that a model larger than memory
// needs one layer at a time.
namespace kvatlas::capture {

struct EngineOptions {
  Placement placement{"cpu", "float32", ""};
  /// Bytes that the process may take (0: no limit). Weights that do not fit are streamed; a budget
  /// that even that does not fit is an Error(resource) that says what is needed.
  std::int64_t memory_budget = 0;
  std::int64_t all_tokens = 0;  // tokens of all sequences that will be held at once, for the budget
  std::int64_t longest = 0;     // tokens of the longest sequence
  bool keep_caches = true;      // sequences are continued, so their keys and values are held
  std::int64_t other_bytes = 0;  // what the caller takes beside the model, for the budget
  std::int64_t copy_bytes = 0;   // and so much for copies, but no more than a quarter of the budget
  enum class Weights { automatic, resident, streaming } weights = Weights::automatic;
};

/// How a run will use memory, as far as can be foreseen.
struct MemoryPlan {
  bool streaming = false;
  std::int64_t weight_bytes = 0;       // all weights
  std::int64_t held_weight_bytes = 0;  // the weights that are held at a time
  std::int64_t total_bytes = 0;        // the whole process
  std::int64_t least_bytes = 0;        // the whole process, with weights as they take least
};
/// What the options leave for copies.
std::int64_t room_for_copies(const EngineOptions& options);
MemoryPlan plan_memory(const model::ModelFile& model, const EngineOptions& options);

/// Error(resource), saying what budget is needed, if the plan takes more than it allows.
void require_memory(const MemoryPlan& plan, const EngineOptions& options);

/// What one layer's attention works on for one sequence, after RoPE. Valid during the call only.
struct AttentionInputs {
  std::int64_t layer = 0;
  std::size_t sequence = 0;  // index in run()'s list
  AnyView<3> query;          // [n_heads, n_new, head_dim]
  AnyView<3> key, value;     // [n_kv_heads, n_all, head_dim]
  AnyView<2>
      logsumexp;  // [n_heads, n_new] float32, of each row's scores and sink; no data: not computed
  double scale = 1.0;
  double softcap = 0.0;
  KeyWindow window = {};
  /// [n_heads]: a logit that takes a share of each row and gives nothing; no data: none.
  View<const float, 1> sinks;
};
using AttentionObserver = std::function<void(const AttentionInputs&)>;

/// One layer's queries before RoPE, [n_heads, n_new, head_dim]. Valid during the call only.
using QueryObserver =
    std::function<void(std::int64_t layer, std::size_t sequence, const AnyView<3>& query)>;
/// How far back a layer's KV heads attend, [n_kv_heads] on the host. Layers without keys of their
/// own are left out.
using ReachObserver =
    std::function<void(std::int64_t layer, std::size_t sequence, std::span<const float> reach)>;

/// How much each of a layer's values gives to its output, [n_kv_heads, n_all] float32: the sum of
/// the magnitudes of what the output projection makes of it, in the mean over the query heads of
/// its KV head.
using ValueObserver =
    std::function<void(std::int64_t layer, std::size_t sequence, const AnyView<2>& outputs)>;

/// Where a continuation leaves an earlier one: up to this layer the two are one row.
struct Branch {
  std::size_t of = 0;
  std::int64_t layer = 0;
};

/// One token each of several continuations of a prompt, at one layer, after RoPE.
struct ContinuationRows {
  std::int64_t layer = 0;
  std::int64_t position = 0;  // of all of them
  /// [continuation]: its row. The first ones have rows of their own, in their order.
  std::span<const std::int64_t> row_of;
  AnyView<3> query;       // [rows, n_heads, head_dim]
  AnyView<3> key, value;  // [rows, n_kv_heads, head_dim]
  double scale = 1.0;
  double softcap = 0.0;
  KeyWindow window = {};
  View<const float, 1> sinks;  // as in AttentionInputs
  View<float, 3> out;          // to be filled: [rows, n_heads, head_dim]
};

/// Rows of logits as they are computed: first row's position, then [rows, vocab_size] on the host.
using LogitsObserver =
    std::function<void(std::size_t sequence, std::int64_t position, View<const float, 2> rows)>;

enum class Logits { none, last, all };

class Engine;

/// What the layers without attention hold of a sequence at one position; empty where the model has
/// none. Copies are cheap, and never changed by what a sequence does later.
class LayerStates {
 public:
  struct State;

 private:
  friend class Engine;
  friend class Sequence;
  std::shared_ptr<const State> state_;
};

/// One token each of several continuations of a prompt, all at one position.
struct ContinuationStep {
  std::vector<std::int64_t> tokens = {};  // [continuation]
  std::int64_t position = 0;
  /// Empty, or one of each continuation, in the order of their layers, the first of layer 0: what
  /// is alike is computed once. Only for models without layer states.
  std::vector<Branch> branches = {};
  /// Those of each continuation, which are advanced; empty for a model without such.
  std::vector<LayerStates*> states = {};
  /// What the rows attend to is the caller's.
  std::function<void(const ContinuationRows&)> attention = {};
  /// Gets the rows, in order, in one or more pieces, and the number of each piece's first row.
  std::function<void(std::int64_t first, View<const float, 2> rows)> logits = {};
};

// Where the bytes of what is kept for later go, and where they come from again, in the same order.
using WriteBytes = std::function<void(std::span<const std::byte>)>;
using ReadBytes = std::function<void(std::span<std::byte>)>;

/// One prompt and what follows it: its length so far and its KV cache. Movable.
class Sequence {
 public:
  Sequence(Sequence&&) noexcept;
  Sequence& operator=(Sequence&&) noexcept;
  ~Sequence();

  std::int64_t length() const;               // tokens run so far
  const std::vector<float>& logits() const;  // of the last token of the last run, [vocab_size]
  /// The keys and values of a layer so far, [n_kv_heads, length, head_dim].
  struct Cache {
    AnyView<3> key, value;
  };
  Cache cache(std::int64_t layer) const;
  /// What layers without attention held after `length` tokens: all of them, or those before the
  /// last run.
  LayerStates layer_states(std::int64_t length) const;

  std::int64_t bytes() const;  // that all of it takes
  /// Hands over all that a sequence with a cache holds; Engine::load makes an equal one of it.
  void save(const WriteBytes& write) const;

 private:
  friend class Engine;
  struct State;
  explicit Sequence(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

/// Who is told what while the engine runs; each may be empty.
struct EngineObservers {
  AttentionObserver attention = {};  // called layer by layer, sequences in order
  LogitsObserver logits = {};        // called with Logits::all
  std::function<void(std::int64_t layers_done)> progress = {};
  QueryObserver queries = {};  // called before `attention`, and so are the next ones
  ReachObserver reach = {};
  ValueObserver value_outputs = {};
};

/// Which keys the tokens of a layer attend to, as flags: a token sees the keys of these columns,
/// and those on these diagonals. Diagonal d is the key d tokens before the token's own.
struct SeenKeys {
  std::vector<std::vector<std::uint8_t>> columns, diagonals;  // [query head][n_all]
};

/// Which layers score distant keys by the queries and keys of which other layers (docs/pod.md).
struct SharedKeys {
  kernels::Proximity proximal;                    // keys that each layer scores by its own
  std::vector<std::vector<std::int64_t>> lowest;  // [query head][layer]: the layer that it uses
};

class Engine {
 public:
  Engine(std::shared_ptr<const model::ModelFile> model, const EngineOptions& options);
  ~Engine();

  /// An empty sequence. Without a cache it can be run only once.
  Sequence sequence(bool keep_cache = true) const;
  /// A sequence of this engine that was saved.
  Sequence load(const ReadBytes& read) const;

  struct Step {
    Sequence* sequence;
    std::vector<std::int64_t> tokens;  // appended to the sequence
    /// With Logits::all, for how many of the last of these tokens logits are computed.
    std::int64_t logit_rows = std::numeric_limits<std::int64_t>::max();
    /// [n_layers] or empty: in layers where it is set, every token attends to its proximal keys
    /// alone.
    std::vector<std::optional<kernels::Proximity>> proximal = {};
    /// If set, it may change the keys and values of these tokens, [n_kv_heads, n_new, head_dim],
    /// before they are kept and attended to.
    std::function<void(std::int64_t layer, const AnyView<3>& key, const AnyView<3>& value)>
        on_store = {};
    /// If set, it may change their queries, [n_heads, n_new, head_dim], before they attend.
    std::function<void(std::int64_t layer, const AnyView<3>& query)> on_query = {};
    /// If set, layers score their distant keys by the queries and keys of lower layers.
    std::optional<SharedKeys> shared = {};
    /// If set, asked in every layer which keys its tokens attend to, of those that the layer lets
    /// them see. `logsumexp` has no data then.
    std::function<SeenKeys(const AttentionInputs&)> seen = {};
    /// The tokens are read behind the sequence, which is left as it was. With Logits::none, and
    /// without `shared`.
    bool forgotten = false;
  };
  using Observers = EngineObservers;
  /// Appends tokens to sequences and runs the model over them. Throws Error: a token out of range,
  /// memory that runs out, a model file that changed.
  void run(std::span<const Step> steps, Logits logits, const Observers& observers = {});

  /// Runs a step each of several prompts' continuations through the layers together, as rows that
  /// know nothing of each other.
  void run_continuations(std::span<const ContinuationStep> steps);
  bool has_layer_states() const;

  const model::ModelFile& model() const;
  bool streaming() const;
  std::string plan() const;  // one line: device, number format, weights resident or streamed, bytes

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Error(code) if an id is not in the model's vocabulary.
void require_in_vocabulary(std::span<const std::int64_t> tokens, const model::Config& config,
                           ErrorCode code);

/// The id of the largest of the logits; the lowest id of equal ones.
std::int64_t argmax(std::span<const float> logits);
/// The ids of the `count` largest logits, or of all if there are fewer. The largest comes first,
/// and of equal ones the lower id.
std::vector<std::int64_t> best_tokens(std::span<const float> logits, std::size_t count);

/// Error(numeric), naming the prompt, if the sequence's last logits hold NaN.
void require_numbers(const Sequence& sequence, const std::string& prompt);

}  // namespace kvatlas::capture
