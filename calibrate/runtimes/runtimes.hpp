// SPDX-License-Identifier: Apache-2.0
// How each runtime behaves with an exported policy: what it can carry out, what it loses, and the
// policy that it will really run. What is said here was read or run at the versions given.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "calibrate/policy/policy.hpp"

namespace kvatlas::calibrate {

/// The forms in which a method reaches a runtime.
enum class Form : std::uint8_t {
  lazy_layers,    // a fixed set of lazy layers; streaming: all of them
  lazy_by_input,  // lazy layers by the threshold, for each input
  lazy_heads,     // a fixed set of lazy KV heads
  pod,
  dynamickv,  // a budget for each layer
  lagkv,
};
inline constexpr std::size_t kForms = 6;
const char* form_name(Form form);

enum class Fit : std::uint8_t { impossible, approximate, exact };

/// How well a runtime carries out a form. Losses are letters:
/// a  the first `initial` tokens are lost
/// b  the window masks the prefill too
/// c  the window keeps rolling while decoding
/// d  one window size for every lazy layer
/// e  holds at one stated prompt length, for the runtime takes a ratio
/// f  attention is masked, the memory is not freed
/// g  other tokens are kept than the policy's score would keep
struct Expression {
  Fit fit = Fit::impossible;
  std::string losses;
  std::string note;  // a clause; may be empty
};

/// What a loss letter means, as a clause; "" for other letters.
const char* loss_text(char letter);

/// What becomes of the models of an architecture.
struct ArchitectureNote {
  std::string architecture;
  bool refused = false;
  std::string text;  // why it is refused, or what must be minded
};

struct Runtime {
  std::string name, title, versions;
  std::array<Expression, kForms> forms = {};
  bool keeps_initial = false;  // windows keep the first tokens
  bool masks_prefill = false;  // windows mask the prefill
  bool rolls = false;          // windows stay at their size while decoding
  bool all_layers_alike = false;
  std::int64_t block_tokens = 1;  // sizes are multiples of it
  std::int64_t page_tokens = 1;   // that its cache is handed out in, unless it is told otherwise
  /// Layers of a kind lie in groups of equal size, the last of which is padded.
  bool equal_groups = false;
  std::vector<ArchitectureNote> architectures = {};
  /// Why architectures that are not listed are refused; empty: they are not.
  std::string refuses_others = {};

  const Expression& form(Form which) const { return forms[static_cast<std::size_t>(which)]; }
};

/// Layers that `equal_groups` adds and that hold nothing.
struct PaddedLayers {
  std::int64_t group = 0;  // layers a group
  std::int64_t full = 0, sliding = 0;
};
PaddedLayers padded_layers(std::int64_t full, std::int64_t sliding);

/// In the order of the lists that are shown.
const std::vector<Runtime>& runtimes();
/// Error(usage) that lists the known ones.
const Runtime& runtime_named(std::string_view name);
/// Why the runtime cannot window, or patch, the layers of such a model; "" if it can.
std::string refusal_of(const Runtime& runtime, std::string_view architecture);

/// The form of a policy's part for a runtime; none for baselines, which no runtime is given.
std::optional<Form> form_of(const Part& part);

/// A policy of a document as it is handed to a runtime.
struct GivenPolicy {
  Policy policy;
  bool is_static = false;  // the static view of a policy that decides by input
};

/// Lazy layers by input are fixed where the runtime cannot decide them, or `fixed` asks for it:
/// Error(usage) if calibration left no static view in the document.
GivenPolicy given_to_runtime(const Document& document, Policy policy, const Runtime& runtime,
                             bool fixed = false);

/// What a runtime makes of a policy.
struct RuntimePolicy {
  Policy policy;
  std::vector<std::string> changes;  // a sentence each, what differs from the policy as it was
  /// Why what the runtime does is no policy that could be simulated; empty: `policy` says it.
  std::string not_simulated = {};
};

/// Error(usage), with the reason, where the runtime cannot run the policy on the model.
RuntimePolicy as_runtime_behaves(const Policy& policy, std::string_view runtime,
                                 const ModelInfo& model);
/// The same for those who will run it: Error(usage) also for what is not simulated.
RuntimePolicy simulated_in_runtime(const Policy& policy, std::string_view runtime,
                                   const ModelInfo& model);

}  // namespace kvatlas::calibrate
