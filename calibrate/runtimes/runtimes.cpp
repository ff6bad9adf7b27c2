// SPDX-License-Identifier: Apache-2.0
#include "calibrate/runtimes/runtimes.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "calibrate/policy/policy_settings.hpp"

namespace kvatlas::calibrate {
namespace {

std::int64_t up_to_blocks(std::int64_t tokens, std::int64_t block) {
  return (tokens + block - 1) / block * block;
}

void drop_bits(RuntimePolicy& result) {
  if (result.policy.kv_bits == 16) return;
  result.changes.push_back(
      str("keys and values are stored in 16 bits, not in ", result.policy.kv_bits));
  result.policy.kv_bits = 16;
}

using nlohmann::json;

/// Turns a policy of one part into what the runtime runs.
class Bending {
 public:
  Bending(const Policy& policy, const Runtime& runtime, const ModelInfo& model)
      : runtime_(runtime), model_(model), out_{policy, {}, {}} {}

  RuntimePolicy result() {
    Part& part = out_.policy.parts.at(0);
    const auto form = form_of(part);
    if (!form) refuse("'" + name_of(part) + "' is a baseline to compare with, and not exported");
    const Expression& expression = runtime_.form(*form);
    if (expression.fit == Fit::impossible)
      refuse(str(
          "it cannot take ", form_name(*form),
          expression.note.empty() ? "" : ": " + expression.note,
          *form == Form::lazy_by_input && runtime_.form(Form::lazy_layers).fit != Fit::impossible
              ? "; it takes layers fixed beforehand, as calibration gives them"
              : ""));
    std::visit(*this, part);
    drop_bits(out_);
    if (expression.losses.find('e') != std::string::npos)
      say("the shares it is given hold at the prompt length that they are exported for");
    if (expression.losses.find('f') != std::string::npos)
      say("attention is masked, and the memory is not freed");
    return std::move(out_);
  }

  void operator()(Streaming& part) {
    if (runtime_.name == "mlx-lm") refuse("it needs a full layer at least");
    if (runtime_.name == "openvino") return spare_block(part.keep);
    if (runtime_.name == "simlayerkv") refuse("it takes the threshold alone");
    bend_window(part.keep);
  }

  void operator()(SimLayerKv& part) {
    if (part.opposite) refuse("'opposite' is a control to compare with, and not exported");
    if (runtime_.name == "simlayerkv") return bend_threshold(part);
    if (runtime_.name == "kvcache-factory") {
      out_.not_simulated = "each head selects as many tokens as it has, by its own scores";
      return;
    }
    if (part.fixed) {
      const bool some_full = std::any_of(part.fixed->begin(), part.fixed->end(), [](auto& row) {
        return std::count(row.begin(), row.end(), 0) > 0;
      });
      if (runtime_.name == "openvino" && some_full) {
        out_.not_simulated = "all layers have the mean of what the policy keeps";
        return;
      }
      if (runtime_.all_layers_alike && some_full)
        refuse("it trims all layers or none, and the policy keeps some full");
      if (runtime_.name == "mlx-lm" && !some_full) refuse("it needs a full layer at least");
      if (runtime_.name == "openvino") return spare_block(part.keep);
    } else {  // kvpress
      part.identify = SimLayerKv::Identify::prefill;
      part.w_last = 1;
      part.without_own_key = true;
      say("it decides on the last prompt row instead of the first generated token");
      if (part.keep.recent > 1) {
        --part.keep.recent;
        say(str("it keeps ", part.keep.recent,
                " recent tokens, for the last row's own is counted"));
      }
      if (part.per_head) refuse("it decides for layers, not for heads");
    }
    bend_window(part.keep);
  }

  void operator()(DynamicKv& part) {
    WindowBudget& select = part.select;
    if (runtime_.name == "tensorrt-llm") {
      out_.not_simulated = "RocketKV selects pages of tokens by its own scores";
    } else if (runtime_.name == "transformers") {
      if (model_.architecture != "llama")
        refuse("windows of different sizes end in an error on architectures other than llama");
      require_budgets(part);
      out_.not_simulated = "every layer has a window of its own size";
    } else if (runtime_.name == "dynamickv") {
      if (part.fixed) say("it finds the budgets anew for each prompt: those given are not used");
      part.fixed.reset();
    } else if (runtime_.name == "openvino") {
      // The first block, the last ones, and one for those that took most attention.
      const std::int64_t block = runtime_.block_tokens;
      const std::int64_t budget = std::max(up_to_blocks(mean_budget(part), block), 3 * block);
      say(str("every layer keeps the ", budget, " tokens that took most attention"));
      out_.policy.parts.at(0) = H2o{budget};
    } else {
      require_budgets(part);
      if (runtime_.name == "kvpress") {
        set(select.pooling, Pooling::average, "it pools scores by their average");
      } else if (runtime_.name == "kvcache-factory") {
        const std::int64_t rows = 8;
        select.budget += rows - select.window;
        set(select.window, rows, "its window has 8 rows, kept on top of the budgets");
        set(select.kernel, std::int64_t{7}, "it pools scores over 7 positions");
        set(select.pooling, Pooling::maximum, "it pools scores by their greatest");
      }
    }
  }

  void operator()(const LagKv& part) {
    if (runtime_.name == "transformers-cache") return;
    if (part.variant != LagVariant::lag) refuse("it knows none of LagKV's variants");
    if (runtime_.name == "kvpress") say("nothing is cut while decoding, which is not simulated");
  }

  template <class Other>
  void operator()(const Other&) {}

 private:
  void require_budgets(const DynamicKv& part) const {
    if (!part.fixed)
      refuse("it takes budgets found beforehand, and the policy finds them by prompt");
  }
  [[noreturn]] void refuse(const std::string& why) const {
    fail(ErrorCode::usage, runtime_.title, " cannot run '", policy_text(out_.policy), "': ", why);
  }
  void say(const std::string& sentence) { out_.changes.push_back(sentence); }
  template <class T>
  void set(T& value, T theirs, const char* sentence) {
    if (value == theirs) return;
    value = theirs;
    say(sentence);
  }

  void bend_window(Proximity& keep) {
    if (runtime_.name == "minference")
      out_.not_simulated = "it makes the prefill sparse and keeps the whole cache";
    if (!runtime_.keeps_initial && keep.initial > 0) {
      say(str("the first ", keep.initial, " tokens are not kept"));
      keep.initial = 0;
    }
    // The cache of transformers' Llama is cut by windows that its mask does not know.
    const bool masks = runtime_.masks_prefill &&
                       !(runtime_.name == "transformers" && model_.architecture == "llama");
    if (masks && !out_.policy.masks_prefill) {
      say("the window masks the prefill too");
      out_.policy.masks_prefill = true;
    }
    if (runtime_.rolls && !out_.policy.rolling) {
      say("the window keeps its size while decoding");
      out_.policy.rolling = true;
    } else if (!runtime_.rolls && out_.policy.rolling) {
      say("what is generated is kept");
      out_.policy.rolling = false;
    }
  }

  /// The repository's program: a threshold, and its own literals.
  void bend_threshold(SimLayerKv& part) {
    if (part.fixed)
      say("it decides by the threshold for each input: the fixed layers are not used");
    part.fixed.reset();
    if (part.per_head) refuse("it decides for layers, not for heads");
    set(part.identify, SimLayerKv::Identify::decode, "it decides at the first generated token");
    set(part.keep.initial, std::int64_t{4}, "it keeps 4 initial tokens");
    set(part.keep.recent, std::int64_t{1024}, "it keeps 1024 recent tokens");
    set(out_.policy.rolling, false, "what is generated is kept");
  }

  /// OpenVINO: whole blocks, and one more than the first and the recent ones.
  void spare_block(Proximity& keep) {
    const std::int64_t block = runtime_.block_tokens;
    set(keep.initial, std::max(block, up_to_blocks(keep.initial, block)),
        "the first tokens are rounded up to whole blocks of 32");
    keep.recent = up_to_blocks(keep.recent, block) + block;
    say(str("the recent tokens are whole blocks of 32 and a spare one, ", keep.recent,
            " tokens, the spare one kept by its attention"));
    if (!out_.policy.rolling) say("the cache keeps its size while decoding");
    out_.policy.rolling = true;
  }

  std::int64_t mean_budget(const DynamicKv& part) const {
    if (!part.fixed || part.fixed->empty()) return part.select.budget;
    std::int64_t sum = 0;
    for (const auto tokens : *part.fixed) sum += tokens;
    return sum / static_cast<std::int64_t>(part.fixed->size()) + part.select.window;
  }

  const Runtime& runtime_;
  const ModelInfo& model_;
  RuntimePolicy out_;
};

/// The static view that calibration left beside a per-input policy.
std::optional<LazyHeads> static_view(const json& section, bool per_head) {
  const char* view = per_head ? "per_head" : "static";
  const char* list = per_head ? "lazy_heads" : "lazy_layers";
  if (!section.contains(view) || !section.at(view).is_object() || !section.at(view).contains(list))
    return std::nullopt;
  // Read as the result it would be, with the checks of one.
  const json as_result = {{"settings", section.at("settings")},
                          {"result", {{list, section.at(view).at(list)}}}};
  return std::get<SimLayerKv>(part_of("simlayerkv", as_result)).fixed;
}

/// Whether it depends on the architecture that the runtime can carry out the form.
bool needs_known_architecture(const Runtime& runtime, Form form) {
  return form <= Form::lazy_heads || runtime.name == "dynamickv" ||
         runtime.name == "kvcache-factory";
}

/// Whether the runtime is given the static view of this policy.
bool wants_static_view(const Policy& policy, const Runtime& runtime, bool fixed) {
  if (policy.parts.size() != 1) return false;
  const auto* part = std::get_if<SimLayerKv>(&policy.parts.front());
  if (!part || part->fixed || part->opposite) return false;
  if (fixed) return true;
  const bool decides = runtime.form(Form::lazy_by_input).fit != Fit::impossible &&
                       (!part->per_head || runtime.name == "transformers-cache");
  return !decides;
}

}  // namespace

const char* form_name(Form form) {
  switch (form) {
    case Form::lazy_layers:
      return "fixed lazy layers";
    case Form::lazy_by_input:
      return "lazy layers found for each input";
    case Form::lazy_heads:
      return "lazy heads";
    case Form::pod:
      return "layers that share keys (PoD)";
    case Form::dynamickv:
      return "a budget for each layer (DynamicKV)";
    case Form::lagkv:
      return "partitions cut by lag (LagKV)";
  }
  return "";
}

const char* loss_text(char letter) {
  switch (letter) {
    case 'a':
      return "the first tokens are lost";
    case 'b':
      return "the window masks the prefill too";
    case 'c':
      return "the window keeps rolling while decoding";
    case 'd':
      return "one window size for every lazy layer";
    case 'e':
      return "holds at the stated prompt length only";
    case 'f':
      return "attention is masked, the memory is not freed";
    case 'g':
      return "other tokens are kept than the policy's score would keep";
    default:
      return "";
  }
}

PaddedLayers padded_layers(std::int64_t full, std::int64_t sliding) {
  if (full == 0 || sliding == 0) return {full + sliding, 0, 0};
  const auto [fewer, more] = std::minmax(full, sliding);
  const std::int64_t group = 2 * more < 3 * fewer ? more : fewer;
  const auto padding = [&](std::int64_t layers) { return (group - layers % group) % group; };
  return {group, padding(full), padding(sliding)};
}

const Runtime& runtime_named(std::string_view name) {
  std::string known;
  for (const auto& runtime : runtimes()) {
    if (runtime.name == name) return runtime;
    known += (known.empty() ? "" : ", ") + runtime.name;
  }
  fail(ErrorCode::usage, "there is no runtime ", quoted(name), "; known are ", known);
}

std::string refusal_of(const Runtime& runtime, std::string_view architecture) {
  for (const auto& note : runtime.architectures)
    if (note.architecture == architecture) return note.refused ? note.text : "";
  return runtime.refuses_others;
}

std::optional<Form> form_of(const Part& part) {
  if (std::holds_alternative<Streaming>(part)) return Form::lazy_layers;
  if (std::holds_alternative<Pod>(part)) return Form::pod;
  if (std::holds_alternative<DynamicKv>(part)) return Form::dynamickv;
  if (std::holds_alternative<LagKv>(part)) return Form::lagkv;
  const auto* lazy = std::get_if<SimLayerKv>(&part);
  if (!lazy) return std::nullopt;
  if (!lazy->fixed) return Form::lazy_by_input;
  const bool whole_layers =
      std::all_of(lazy->fixed->begin(), lazy->fixed->end(), [](const auto& row) {
        return std::adjacent_find(row.begin(), row.end(), std::not_equal_to<>()) == row.end();
      });
  return whole_layers ? Form::lazy_layers : Form::lazy_heads;
}

GivenPolicy given_to_runtime(const Document& document, Policy policy, const Runtime& runtime,
                             bool fixed) {
  if (!wants_static_view(policy, runtime, fixed)) return {std::move(policy), false};
  auto& part = std::get<SimLayerKv>(policy.parts.front());
  part.fixed = static_view(document.sections.at(policy.section), part.per_head);
  if (!part.fixed)
    fail(ErrorCode::usage, runtime.title,
         " takes lazy layers fixed beforehand, and the document has no static view of them: "
         "'kvatlas calibrate' writes one");
  policy.section += "/static";
  policy.name += " fixed";
  return {std::move(policy), true};
}

RuntimePolicy as_runtime_behaves(const Policy& policy, std::string_view name,
                                 const ModelInfo& model) {
  const Runtime& runtime = runtime_named(name);
  check_composition(policy);
  if (runtime.name == "transformers-cache") {
    for (const auto& part : policy.parts)
      if (!form_of(part))
        fail(ErrorCode::usage, "'", name_of(part),
             "' is a baseline to compare with, and not exported");
    return {policy, {}, {}};
  }
  if (policy.parts.empty()) {
    RuntimePolicy full{policy, {}, {}};
    drop_bits(full);
    return full;
  }
  if (policy.parts.size() != 1)
    fail(ErrorCode::usage, runtime.title, " cannot run '", policy_text(policy),
         "': it takes one method, and the policy has ", policy.parts.size());
  const auto form = form_of(policy.parts[0]);
  const bool by_architecture = form && needs_known_architecture(runtime, *form);
  if (const auto why = refusal_of(runtime, model.architecture); by_architecture && !why.empty())
    fail(ErrorCode::usage, runtime.title, " cannot run the policy on a model of architecture ",
         quoted(model.architecture), ": ", why);
  RuntimePolicy result = Bending(policy, runtime, model).result();
  for (const auto& note : runtime.architectures)
    if (by_architecture && note.architecture == model.architecture && !note.text.empty())
      result.changes.push_back(runtime.title + " on " + note.architecture + ": " + note.text);
  return result;
}

RuntimePolicy simulated_in_runtime(const Policy& policy, std::string_view name,
                                   const ModelInfo& model) {
  RuntimePolicy theirs = as_runtime_behaves(policy, name, model);
  if (!theirs.not_simulated.empty())
    fail(ErrorCode::usage, runtime_named(name).title, " with '", policy_text(policy),
         "' is not simulated: ", theirs.not_simulated);
  return theirs;
}

}  // namespace kvatlas::calibrate
