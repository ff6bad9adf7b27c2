// SPDX-License-Identifier: Apache-2.0
#include "calibrate/runtimes/runtimes.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "base/plain_text.hpp"
#include "calibrate/policy/method.hpp"
#include "calibrate/runtimes/runtime_impl.hpp"

namespace kvatlas::calibrate {

// Each runtime stands in the file of its name.
Runtime kvpress(), duo_attention(), vllm(), tensorrt_llm(), transformers(), sglang(), llama_cpp(),
    mlx_lm(), mlc_llm(), openvino(), minference(), simlayerkv(), dynamickv(), lagkv(),
    kvcache_factory(), transformers_cache(), ik_llama_cpp();

const std::vector<Runtime>& runtimes() {
  static const std::vector<Runtime> all = {kvpress(),
                                           duo_attention(),
                                           vllm(),
                                           tensorrt_llm(),
                                           transformers(),
                                           sglang(),
                                           llama_cpp(),
                                           mlx_lm(),
                                           mlc_llm(),
                                           openvino(),
                                           minference(),
                                           simlayerkv(),
                                           dynamickv(),
                                           lagkv(),
                                           kvcache_factory(),
                                           transformers_cache(),
                                           ik_llama_cpp()};
  return all;
}

namespace {

using nlohmann::json;

/// The static view that calibration left in the section of a policy that decides for each input.
std::optional<LazyHeads> static_view(const json& section, bool per_head) {
  const char* view = per_head ? "per_head" : "static";
  const char* list = per_head ? "lazy_heads" : "lazy_layers";
  if (!section.contains(view) || !section.at(view).is_object() || !section.at(view).contains(list))
    return std::nullopt;
  // It is read like a result, so that it passes the same checks.
  const json as_result = {{"settings", section.at("settings")},
                          {"result", {{list, section.at(view).at(list)}}}};
  return std::get<SimLayerKv>(part_of(method::kSimLayerKv.name, as_result)).fixed;
}

/// Whether the runtime must be given the static view of the policy, or is to be given it.
bool wants_static_view(const Policy& policy, const Runtime& runtime, bool fixed) {
  if (policy.parts.size() != 1) return false;
  const auto* part = std::get_if<SimLayerKv>(&policy.parts.front());
  if (!part || part->fixed || part->opposite) return false;
  const bool decides =
      runtime.takes(Form::lazy_by_input) && (!part->per_head || runtime.runs_everything);
  return fixed || !decides;
}

/// The form of a part. Error(usage) for baselines, which have none.
Form form_to_export(const Part& part) {
  const auto form = form_of(part);
  if (!form)
    fail(ErrorCode::usage, "'", name_of(part), "' is a baseline to compare with, and not exported");
  const auto* pod = std::get_if<Pod>(&part);
  const WindowBudget* select = window_budget(part);
  if ((pod && pod->shared_prefill) || (select && select->per_query_head))
    fail(ErrorCode::usage, pod ? "'prefill=shared'" : "'heads=query'",
         " is for 'kvatlas evaluate', and no runtime does it");
  return *form;
}

void require_taken(const Runtime& runtime, Form form) {
  if (!runtime.takes(form))
    fail(ErrorCode::usage, "it cannot take ", form_name(form),
         form == Form::lazy_by_input && runtime.takes(Form::lazy_layers)
             ? "; it takes layers fixed beforehand, as calibration gives them"
             : "");
}

void require_plain_layers(const Runtime& runtime, const ModelInfo& model) {
  if (const auto why = why_no_runtime(model); !why.empty())
    fail(ErrorCode::usage, runtime.title, " is given no policy of a model of architecture ",
         quoted(model.architecture), ": ", why);
}

/// Error(usage) with the reason if the runtime's cache has not these formats, for such heads.
void require_known_formats(const Precision& part, const Runtime& runtime, const ModelInfo& model) {
  const FormatsTaken& taken = runtime.formats_taken;
  std::vector<std::string_view> known = {facts_of(KvFormat::f16).word};
  for (const KvFormat format : taken.formats) known.push_back(facts_of(format).word);
  for (const KvFormats& layer : layer_formats(part, model.layers))
    for (const KvFormat format : {layer.keys, layer.values}) {
      if (format != KvFormat::f16 && !taken.formats.contains(format))
        fail(ErrorCode::usage, "its cache has no format ", quoted(facts_of(format).word), ", only ",
             join(known));
      if (const auto lack = lack_of_format(format, model.head_dim); !lack.empty())
        fail(ErrorCode::usage, lack);
    }
  if (runtime.runs_everything && (part.fp8_queries || part.chunk > 0))
    fail(ErrorCode::usage,
         "'queries=fp8' and 'chunk' are for 'kvatlas evaluate', and its cache "
         "knows neither");
}

/// The same for how they are spread over keys, values and layers.
void require_formats(const Precision& part, const Runtime& runtime, const ModelInfo& model) {
  require_known_formats(part, runtime, model);
  const FormatsTaken& taken = runtime.formats_taken;
  const std::vector<KvFormats> layers = layer_formats(part, model.layers);
  std::set<std::pair<KvFormat, KvFormat>> used;
  for (const KvFormats& layer : layers) {
    if (!taken.apart && layer.keys != layer.values)
      fail(ErrorCode::usage, "it stores the keys and the values of a layer in one format");
    if (!taken.by_layer || !layer.plain()) used.emplace(layer.keys, layer.values);
  }
  if (taken.by_ends) {
    for (const auto side : {&KvFormats::keys, &KvFormats::values}) {
      const auto changes = std::count_if(layers.begin() + 1, layers.end(), [&](const auto& layer) {
        return layer.*side != (&layer - 1)->*side;
      });
      if (changes > 2)
        fail(ErrorCode::usage, "it stores the ", side == &KvFormats::keys ? "keys" : "values",
             " of its first layers, of its last ones and of those between in one format each");
    }
  } else if (used.size() > 1)
    fail(ErrorCode::usage, "it stores all layers in one format",
         taken.by_layer ? ", or in 16 bits" : "");
}

/// Layers that the runtime spares by itself.
void spare_ends(RuntimePolicy& theirs, Precision& part, const FormatsTaken& taken,
                const ModelInfo& model) {
  auto layers = layer_formats(part, model.layers);
  for (std::size_t l = 0; l < layers.size(); ++l)
    if (spares_layer(taken, layers[l].keys, static_cast<std::int64_t>(l), model.layers))
      layers[l] = {};
  if (layers == layer_formats(part, model.layers)) return;
  part.fixed = layers;
  part.skip.clear();
  theirs.changes.push_back(str("its first ", taken.ends, " and last ", taken.ends,
                               " layers stay at 16 bits, whatever it is told"));
}

/// A server reads what it has stored, also while it reads the prompt.
void bend_formats(RuntimePolicy& theirs, const Runtime& runtime, const ModelInfo& model) {
  Precision& part = std::get<Precision>(theirs.policy.parts.front());
  require_formats(part, runtime, model);
  spare_ends(theirs, part, runtime.formats_taken, model);
  if (runtime.backend.cuts) {
    auto layers = layer_formats(part, model.layers);
    for (KvFormats& layer : layers)
      for (KvFormat* side : {&layer.keys, &layer.values})
        *side = *side == KvFormat::fp8        ? KvFormat::fp8_cpu
                : *side == KvFormat::fp8_e5m2 ? KvFormat::fp8_e5m2_cpu
                                              : *side;
    if (layers != layer_formats(part, model.layers)) {
      part.fixed = layers;
      part.skip.clear();
      theirs.changes.emplace_back("numbers are cut toward zero, not rounded to the nearest");
    }
  }
  set(theirs, part.fp8_queries, part.fp8_queries || runtime.backend.fp8_queries,
      "queries are rounded to E4M3");
  theirs.not_simulated = runtime.formats_taken.not_simulated;
  if (!theirs.not_simulated.empty()) return;
  set(theirs, part.rounded_prefill, true, "the prompt's tokens attend to rounded keys and values");
}

/// Whether it is of lazy layers, whole ones, and of a selection in the others.
bool trims_and_selects(const Policy& policy) {
  return policy.parts.size() == 2 && traits_of(policy.parts[0]).kind == PartKind::trims &&
         form_of(policy.parts[0]) != Form::lazy_heads &&
         traits_of(policy.parts[1]).kind == PartKind::selects;
}

void drop_bits(RuntimePolicy& theirs) {
  if (theirs.policy.kv_bits == 16) return;
  theirs.changes.push_back(
      str("keys and values are stored in 16 bits, not in ", theirs.policy.kv_bits));
  theirs.policy.kv_bits = 16;
  theirs.policy.kv_residual = 0;
}

/// Turns a policy of one part into what the runtime runs.
void bend(RuntimePolicy& theirs, const Runtime& runtime, const ModelInfo& model) {
  const Part& part = theirs.policy.parts.front();
  const Form form = form_to_export(part);
  require_taken(runtime, form);
  if (const auto* lazy = std::get_if<SimLayerKv>(&part); lazy && lazy->opposite)
    fail(ErrorCode::usage, "'opposite' is a control to compare with, and not exported");
  const Losses& losses = runtime.form(form).losses;
  if (form == Form::precision)
    bend_formats(theirs, runtime, model);
  else
    runtime.bend(theirs, losses, model);
  drop_bits(theirs);
  if (losses.contains(Loss::holds_at_length))
    theirs.changes.emplace_back(
        "the shares it is given hold at the prompt length that they are exported for");
  if (losses.contains(Loss::memory_not_freed))
    theirs.changes.emplace_back("attention is masked, and the memory is not freed");
}

/// The selection is made in the layers that see all tokens. The others are named as lazy ones that
/// keep what the model lets them see.
void select_beside_windows(RuntimePolicy& theirs, const Runtime& runtime, const ModelInfo& model) {
  std::vector<Part>& parts = theirs.policy.parts;
  const bool has_windows = std::any_of(model.windows.begin(), model.windows.end(),
                                       [](const auto window) { return window > 0; });
  if (!has_windows || !runtime.selects_beside_windows ||
      traits_of(parts.back()).kind != PartKind::selects)
    return;
  if (parts.size() > 1)
    fail(ErrorCode::usage, runtime.title, " cannot run '", policy_text(theirs.policy),
         "': layers with windows of the model's own stay as they are under a selection, and lazy "
         "layers beside it would have another window");
  SimLayerKv windows{.keep = {0, *std::max_element(model.windows.begin(), model.windows.end())},
                     .fixed = LazyHeads()};
  for (const auto window : model.windows)
    windows.fixed->push_back({static_cast<std::uint8_t>(window > 0)});
  parts.insert(parts.begin(), std::move(windows));
  theirs.changes.emplace_back("layers with a window of the model's own stay as they are");
}

}  // namespace

const char* form_name(Form form) { return kForms[static_cast<std::size_t>(form)].text; }

char loss_letter(Loss loss) { return static_cast<char>('a' + static_cast<int>(loss)); }

std::string loss_letters(const Losses& losses) {
  std::string letters;
  for (const Loss loss : losses) letters += loss_letter(loss);
  return letters;
}

const char* loss_text(Loss loss) {
  // They stand in the order of Loss.
  static constexpr const char* kTexts[] = {
      "the first tokens are lost",
      "the window masks the prefill too",
      "the window keeps rolling while decoding",
      "one window size for every lazy layer",
      "holds at the stated prompt length only",
      "attention is masked, the memory is not freed",
      "other tokens are kept than the policy's score would keep",
      "whole blocks of the cache are kept, so some tokens more",
      "numbers are rounded in other groups, or in more places than in the cache",
  };
  return kTexts[static_cast<std::size_t>(loss)];
}

const Expression& Runtime::form(Form form) const {
  static const Expression impossible;
  const auto found = forms.find(form);
  return found == forms.end() ? impossible : found->second;
}

std::set<KvFormat> formats_searched(const FormatsTaken& taken) {
  return taken.tried.empty() ? taken.formats : taken.tried;
}

bool spares_layer(const FormatsTaken& taken, KvFormat format, std::int64_t layer,
                  std::int64_t layers) {
  const std::int64_t ends = std::min(taken.ends, layers / 2);
  return facts_of(format).pair && (layer < ends || layer >= layers - ends);
}

std::int64_t page_tokens_of(const FormatsTaken& taken, const std::vector<KvFormats>& layers,
                            std::int64_t head_dim) {
  constexpr std::int64_t kLeastBlock = 16;  // tokens that attention takes at least
  std::int64_t page = taken.page_tokens;
  const double least = static_cast<double>(kLeastBlock * 2 * head_dim) * 2;
  for (const KvFormats& layer : layers)
    while (page > 0 &&
           static_cast<double>(page) * (bytes_of_row(layer.keys, KvSide::keys, head_dim) +
                                        bytes_of_row(layer.values, KvSide::values, head_dim)) <
               least)
      page *= 2;
  return page;
}

PaddedLayers padded_layers(const std::vector<std::int64_t>& kinds) {
  const auto [fewest, most] = std::minmax_element(kinds.begin(), kinds.end());
  PaddedLayers out{2 * *most < 3 * *fewest ? *most : *fewest, {}};
  for (const auto layers : kinds)
    out.of_kinds.push_back((out.group - layers % out.group) % out.group);
  return out;
}

const Runtime& runtime_named(std::string_view name) {
  static const std::vector<Runtime> with_backends = [] {
    std::vector<Runtime> all;
    for (const Runtime& runtime : runtimes())
      for (const Backend& backend : runtime.backends) {
        Runtime& one = all.emplace_back(runtime);
        one.backend = backend;
        one.name += ":" + backend.name;
        one.title += " (" + backend.name + ")";
        one.formats_taken.formats = backend.formats;
        std::erase_if(one.formats_taken.tried,
                      [&](KvFormat format) { return !backend.formats.contains(format); });
      }
    return all;
  }();
  for (const auto* list : {&runtimes(), &with_backends})
    for (const auto& runtime : *list)
      if (runtime.name == name) return runtime;
  for (const auto& runtime : runtimes())
    if (name.substr(0, name.find(':')) == runtime.name)
      fail(ErrorCode::usage, "there is no runtime ", quoted(name), "; ",
           runtime.backends.empty() ? str(runtime.title, " has no backends to name")
                                    : str("backends of ", runtime.title, " are ",
                                          join(runtime.backends, ", ", &Backend::name)));
  fail(ErrorCode::usage, "there is no runtime ", quoted(name), "; known are ",
       join(runtimes(), ", ", &Runtime::name));
}

std::string why_no_runtime(const ModelInfo& model) {
  if (!model.layer_numbers.empty())
    return "layers without attention lie between those that the policy counts";
  if (model.latent_rank > 0) return "its layers cache one latent for all heads";
  if (!model.cached_values.empty()) return "its layers cache different numbers of values";
  return "";
}

std::string refusal_of(const Runtime& runtime, std::string_view architecture) {
  const std::string name(architecture);
  if (runtime.architectures.contains(name)) return "";
  const auto refused = runtime.refuses.find(name);
  return refused == runtime.refuses.end() ? runtime.refuses_others : refused->second;
}

std::optional<Form> form_of(const Part& part) {
  const auto* lazy = std::get_if<SimLayerKv>(&part);
  if (!lazy || !lazy->fixed) return traits_of(part).form;
  const bool whole_layers =
      std::all_of(lazy->fixed->begin(), lazy->fixed->end(), [](const auto& row) {
        return std::adjacent_find(row.begin(), row.end(), std::not_equal_to<>()) == row.end();
      });
  return whole_layers ? Form::lazy_layers : Form::lazy_heads;
}

GivenPolicy given_to_runtime(const Document& document, Policy policy, const Runtime& runtime,
                             bool fixed) {
  if (policy.parts.empty() && policy.kv_bits < 16 && policy.kv_residual == 0 &&
      runtime.takes(Form::precision) && !runtime.runs_everything) {
    policy.parts = {Precision{.everywhere = formats_of(policy, 1).front()}};
    policy.kv_bits = 16;
  }
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
  check_cache(policy, model);
  require_plain_layers(runtime, model);
  RuntimePolicy theirs{policy};
  const auto require_architecture = [&] {
    if (const auto why = refusal_of(runtime, model.architecture); !why.empty())
      fail(ErrorCode::usage, runtime.title, " cannot run the policy on a model of architecture ",
           quoted(model.architecture), ": ", why);
  };
  if (runtime.runs_everything) {
    if (runtime.architecture_decides) require_architecture();
    in_context(str(runtime.title, " cannot run '", policy_text(policy), "'"), [&] {
      for (const auto& part : policy.parts) {
        require_taken(runtime, form_to_export(part));
        if (const auto* formats = std::get_if<Precision>(&part))
          require_known_formats(*formats, runtime, model);
      }
    });
    return theirs;
  }
  if (policy.parts.empty()) {
    drop_bits(theirs);
    return theirs;
  }
  if (policy.parts.size() != 1 && !(runtime.composes && trims_and_selects(policy)))
    fail(ErrorCode::usage, runtime.title, " cannot run '", policy_text(policy), "': it takes ",
         runtime.composes ? "one method, or lazy layers and a selection in the others"
                          : "one method",
         ", and the policy has ", policy.parts.size());
  const auto form = form_of(policy.parts[0]);
  const bool by_architecture = form && (runtime.architecture_decides || *form <= Form::lazy_heads);
  if (by_architecture) require_architecture();
  theirs.policy.parts.clear();
  for (const Part& part : policy.parts) {
    auto bent = std::exchange(theirs.policy.parts, {part});
    try {
      bend(theirs, runtime, model);
    } catch (Error& error) {
      error.in(str(runtime.title, " cannot run '", policy_text(policy), "'"));
      throw;
    }
    bent.push_back(std::move(theirs.policy.parts.front()));
    theirs.policy.parts = std::move(bent);
  }
  select_beside_windows(theirs, runtime, model);
  const auto note = runtime.notes.find(model.architecture);
  if (by_architecture && note != runtime.notes.end())
    theirs.changes.push_back(str(runtime.title, " on ", note->first, ": ", note->second));
  return theirs;
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
