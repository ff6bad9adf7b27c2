// SPDX-License-Identifier: Apache-2.0
// How each runtime behaves with an exported policy: what it can carry out, what is lost, and the
// policy that it really runs. Each runtime stands in the file of its name, and what is said there
// was read in its code, or seen when it ran, at the versions given.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "calibrate/policy/policy_settings.hpp"

namespace kvatlas::calibrate {

/// What a form is called: in JSON, above a column of the matrix, and in a sentence.
struct FormName {
  Form form;
  const char *key, *column, *text;
};
/// Every form once, in the order of the enumeration.
inline constexpr std::array<FormName, 11> kForms = {
    {{Form::lazy_layers, "lazy_layers", "lazy layers", "fixed lazy layers"},
     {Form::lazy_by_input, "lazy_by_input", "by input", "lazy layers found for each input"},
     {Form::lazy_heads, "lazy_heads", "lazy heads", "lazy heads"},
     {Form::pod, "pod", "PoD", "layers that share keys (PoD)"},
     {Form::dynamickv, "dynamickv", "DynamicKV", "a budget for each layer (DynamicKV)"},
     {Form::headkv, "headkv", "HeadKV", "a budget for each KV head (HeadKV)"},
     {Form::lagkv, "lagkv", "LagKV", "partitions cut by lag (LagKV)"},
     {Form::precision, "precision", "precision", "number formats by layer (precision)"},
     {Form::selected, "selected", "selected", "tokens that a score selects"},
     {Form::selected_by_head, "selected_by_head", "sel. by head",
      "tokens that a score selects, more in some heads than in others"},
     {Form::decoding, "decoding", "decoding", "a budget that holds while tokens are generated"}}};
/// The form as it is called in a sentence.
const char* form_name(Form form);

/// What can be lost when a runtime carries out a form.
enum class Loss : std::uint8_t {
  first_tokens_lost,   // the window has no room for the first tokens
  masks_prefill,       // the window already applies while the prompt is read
  window_rolls,        // the window keeps its size while decoding, so older tokens go
  one_window_size,     // every lazy layer has the same window size
  holds_at_length,     // the runtime takes a ratio, which fits one prompt length
  memory_not_freed,    // attention is masked, and the cache stays as large as it was
  keeps_other_tokens,  // the runtime chooses tokens by a score of its own
  whole_blocks,        // what is kept is rounded up to whole blocks of the runtime's cache
  rounds_otherwise,    // numbers are rounded in more places, or in other groups
};
using Losses = std::set<Loss>;
/// The letter that stands for a loss in the matrix and in docs/runtimes.md.
char loss_letter(Loss loss);
/// The letters of several losses, as "abcd".
std::string loss_letters(const Losses& losses);
/// What the loss means, as a clause.
const char* loss_text(Loss loss);

enum class Fit : std::uint8_t { impossible, approximate, exact };

/// How well a runtime carries out a form.
struct Expression {
  Fit fit = Fit::impossible;
  Losses losses = {};
  std::string note = {};  // a clause on how the runtime is given it; may be empty
};

/// A policy as a runtime runs it.
struct RuntimePolicy {
  Policy policy;
  std::vector<std::string> changes = {};  // one sentence for each difference from the given policy
  /// Why what the runtime does cannot be simulated as a policy. If empty, `policy` is what it does.
  std::string not_simulated = {};
};

/// Turns a policy of one part, in a form that the runtime takes, into what the runtime runs. The
/// losses are those of the form. Error(usage) gives the reason why the runtime cannot run it.
using Bend = void (*)(RuntimePolicy& theirs, const Losses& losses, const ModelInfo& model);
/// What most runtimes do: they trim layers or heads to a window that has these losses.
void bend_window(RuntimePolicy& theirs, const Losses& losses, const ModelInfo& model);

/// The number formats that a runtime's cache can have, beside 16 bits.
struct FormatsTaken {
  std::set<KvFormat> formats = {};
  bool by_layer = false;           // some layers may have 16 bits, and others a format
  bool apart = false;              // keys may have another format than values
  std::int64_t page_tokens = 0;    // of its cache then, at least; 0: as ever
  std::string not_simulated = {};  // as in RuntimePolicy
  /// With `by_layer`: all layers that are not at 16 bits have the same format.
  bool one_format = false;
  /// With `by_layer`: keys, and values, have one format in the first layers, one in the last ones
  /// and one between them.
  bool by_ends = false;
  /// So many first layers, and as many last ones, stay at 16 bits in formats that are pairs, but no
  /// more than all.
  std::int64_t ends = 0;
  /// Those that a search tries if it is not told others. Empty: all.
  std::set<KvFormat> tried = {};
};

/// One of several ways in which a runtime's attention works, named behind a colon: "vllm:cpu".
struct Backend {
  std::string name = {};
  std::set<KvFormat> formats = {};
  bool cuts = false;         // numbers are cut toward zero, as the CPU's formats say
  bool fp8_queries = false;  // queries are rounded to E4M3 where the cache is in floating point
};

struct Runtime {
  std::string name, title, versions;
  std::map<Form, Expression> forms = {};     // the forms that it takes
  std::set<std::string> architectures = {};  // that it is known to run
  FormatsTaken formats_taken = {};           // for Form::precision
  std::vector<Backend> backends = {};        // that can be named
  Backend backend = {};                      // that was
  /// By architecture: what the user must mind there, and why it is refused.
  std::map<std::string, std::string> notes = {}, refuses = {};
  /// Why the architectures that are not listed are refused. If empty, they are not refused.
  std::string refuses_others = {};
  /// It depends on the architecture whether any form works. In other runtimes, only lazy layers
  /// and heads depend on it.
  bool architecture_decides = false;
  /// It runs every policy as it is: compositions, bits, and layers and heads found by input.
  bool runs_everything = false;
  /// It runs lazy layers together with a selection in the others.
  bool composes = false;
  std::int64_t page_tokens = 1;  // its cache is handed out in pages of so many tokens
  /// Tokens that it holds beyond the window of a layer: as many as it reads at a time.
  std::int64_t window_spare_tokens = 0;
  /// Layers of a kind lie in groups of equal size, and the last group is padded.
  bool equal_groups = false;
  /// What is kept of a layer is moved together, to the end of its pages, and those in front are
  /// free two tokens later.
  bool moves_rows = false;
  /// Layers with a window of the model's own hold all tokens there, not their window alone.
  bool keeps_windows_whole = false;
  /// Layers with a window of the model's own stay as they are under a selection.
  bool selects_beside_windows = false;
  Bend bend = bend_window;

  const Expression& form(Form form) const;
  bool takes(Form form) const { return forms.contains(form); }
};

/// The formats that a search tries if it is not told which.
std::set<KvFormat> formats_searched(const FormatsTaken& taken);
/// Whether a layer, of so many, stays at 16 bits in this format whatever it is told.
bool spares_layer(const FormatsTaken& taken, KvFormat format, std::int64_t layer,
                  std::int64_t layers);
/// The tokens of a page where layers have these formats: what one of 16-bit layers holds must fill
/// a block of attention.
std::int64_t page_tokens_of(const FormatsTaken& taken, const std::vector<KvFormats>& layers,
                            std::int64_t head_dim);

/// Tokens rounded up to whole pages; one page at least.
std::int64_t whole_pages(std::int64_t tokens, std::int64_t page_tokens);

/// The layers that `equal_groups` adds to each kind and that hold nothing.
struct PaddedLayers {
  std::int64_t group = 0;              // layers in a group
  std::vector<std::int64_t> of_kinds;  // in their order
};
/// For kinds of so many layers each.
PaddedLayers padded_layers(const std::vector<std::int64_t>& kinds);

/// All runtimes, in the order in which lists show them.
const std::vector<Runtime>& runtimes();
/// Error(usage), which lists the known ones, if no runtime has this name. Behind a colon a backend
/// may be named.
const Runtime& runtime_named(std::string_view name);
/// Why no runtime is given a policy of the model; "" if they are. Policies count layers with
/// attention alone, and runtimes count all; and what runtimes trim are keys and values of heads
/// that are alike in all layers.
std::string why_no_runtime(const ModelInfo& model);
/// Why the runtime cannot window, or patch, the layers of such a model; "" if it can.
std::string refusal_of(const Runtime& runtime, std::string_view architecture);

/// The form in which a runtime is given this part; none for baselines, which no runtime is given.
std::optional<Form> form_of(const Part& part);
/// The mean of what the layers keep, the window included.
std::int64_t mean_budget(const DynamicKv& part);

/// The tokens that a head keeps of a prompt of so many, in the mean over the heads that share a
/// budget. For parts of Form::selected and Form::selected_by_head.
std::int64_t tokens_selected(const Part& part, std::int64_t prompt);

/// A policy of a document as it is handed to a runtime: bits that hold for all layers are a part of
/// their own there.
struct GivenPolicy {
  Policy policy;
  bool is_static = false;  // it is the static view of a policy that decides for each input
};

/// Lazy layers that are found for each input become fixed ones if the runtime cannot find them, or
/// if `fixed` asks for it. Error(usage) if calibration left no static view in the document.
GivenPolicy given_to_runtime(const Document& document, Policy policy, const Runtime& runtime,
                             bool fixed = false);

/// Error(usage), with the reason, if the runtime cannot run the policy on the model.
RuntimePolicy as_runtime_behaves(const Policy& policy, std::string_view runtime,
                                 const ModelInfo& model);
/// The same for callers who will simulate it: Error(usage) also for what cannot be simulated.
RuntimePolicy simulated_in_runtime(const Policy& policy, std::string_view runtime,
                                   const ModelInfo& model);

}  // namespace kvatlas::calibrate
