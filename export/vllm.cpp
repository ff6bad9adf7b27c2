// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <numeric>

#include "base/error.hpp"
#include "base/text_count.hpp"
#include "calibrate/rules/rules.hpp"
#include "calibrate/runtimes/runtimes.hpp"
#include "export/shared_impl.hpp"
#include "export/sidecar_impl.hpp"

namespace kvatlas::exporting {

using nlohmann::json;

namespace {

/// Says what memory is lost because vLLM puts layers of a kind into groups of equal size, and pads
/// the last group of each.
std::string padding_note(const json& cuts, std::int64_t layers) {
  std::vector<std::int64_t> kinds;
  std::int64_t cut = 0;
  for (const auto& one : cuts) {
    kinds.push_back(std::ssize(one.at("layers")));
    cut += kinds.back();
  }
  if (layers > cut) kinds.push_back(layers - cut);
  if (kinds.size() == 1) return "";
  const auto padding = calibrate::padded_layers(kinds);
  const auto padded = std::accumulate(padding.of_kinds.begin(), padding.of_kinds.end(), 0L);
  const std::string groups = str("vLLM puts layers that are cut alike (here ", kinds.size(),
                                 " kinds) into groups of ", padding.group);
  if (padded == 0) return groups + ", and none is padded.";
  return str(groups, " and pads them by ", count_of(padded, "layer", "layers"),
             ": memory that holds nothing. Kinds whose numbers of layers divide each other waste "
             "none.");
}

/// The lazy layers, without those whose window of the model's own is the narrower one anyway.
std::vector<bool> layers_to_trim(const PartRequest& request) {
  const auto lazy = lazy_layers(request);
  const auto& own = request.document.model.windows;
  const std::int64_t recent = proximal(request).recent;
  std::vector<bool> layers(lazy.size());
  for (std::size_t l = 0; l < lazy.size(); ++l) {
    const std::int64_t window = own.empty() ? 0 : own[l];
    if (lazy[l] != 0 && window > recent)
      fail(ErrorCode::usage, request.runtime.title, " cannot run the policy: layer ", l,
           " has a window of the model's own, of ", window, " tokens, which the policy's of ",
           recent, " would narrow, and vLLM frees it by itself: leave the layer full");
    layers[l] = lazy[l] != 0 && window == 0;
  }
  return layers;
}

Exported formats_of_layers(const PartRequest& request, const calibrate::Precision& part) {
  using enum calibrate::KvFormat;
  const auto& model = request.document.model;
  const auto& taken = request.runtime.formats_taken;
  const auto layers = calibrate::layer_formats(part, model.layers);
  std::vector<std::string> plain;
  auto format = f16;
  for (std::size_t l = 0; l < layers.size(); ++l) {
    if (!layers[l].plain()) format = layers[l].keys;
  }
  if (format == f16)
    fail(ErrorCode::usage, "the policy stores everything in 16 bits, so there is nothing to tell ",
         request.runtime.title);
  for (std::size_t l = 0; l < layers.size(); ++l)
    if (layers[l].plain() &&
        !spares_layer(taken, format, static_cast<std::int64_t>(l), model.layers))
      plain.push_back(std::to_string(l));
  const std::string_view dtype = format == fp8_cpu        ? facts_of(fp8).word
                                 : format == fp8_e5m2_cpu ? facts_of(fp8_e5m2).word
                                                          : facts_of(format).word;
  json options = {{"kv-cache-dtype", dtype},
                  {"block-size", page_tokens_of(taken, layers, model.head_dim)}};
  if (!plain.empty()) options["kv-cache-dtype-skip-layers"] = plain;
  Exported out;
  out.files.push_back({"vllm.yaml", yaml_text(options)});
  out.use = "vllm serve $MODEL --config vllm.yaml";
  require_scalable(request, format);
  if (format != fp8 && format != fp8_cpu) {
    out.notes = {str("No plugin is needed. ", dtype, " runs on ", facts_of(format).devices, ".")};
    if (facts_of(format).pair)
      out.notes.push_back(
          str("vLLM adds its first ", taken.ends, " and last ", taken.ends,
              " layers to those that stay at 16 bits by itself, and the model must run in 16 bits. "
              "Below SM89, such as on an A100, it rounds keys of turboquant_k8v4 otherwise."));
    return out;
  }
  if (request.scales) {
    add_sidecar(request, true, out);
    out.use = str("vllm serve ", kSidecarFolder, " --config vllm.yaml");
    out.notes = {
        "No plugin is needed. fp8 is E4M3 with the scales of the folder, which vLLM finds "
        "by the names of the layers."};
    if (is_by_head(request.scales->scales))
      out.notes.push_back(
          "Scales of heads need FlashAttention 3 or newer. On CPUs vLLM takes the "
          "greatest of a layer.");
    out.notes.push_back(request.scales->origin);
  } else {
    out.notes = {
        "No plugin is needed. fp8 is E4M3 with the scale 1, which vLLM takes where the checkpoint "
        "has no scales of its own: numbers beyond 448 are cut to that."};
  }
  out.notes.push_back(
      "On CPUs vLLM wants AVX-512 or AMX for it, and heads of a multiple of 32 numbers. It cuts "
      "numbers toward zero there, where kvatlas rounds to the nearest unless it is told vllm:cpu.");
  return out;
}

json window_scores(const calibrate::WindowBudget& select, std::int64_t budget) {
  return {{"budget", budget},
          {"window", select.window},
          {"kernel", select.kernel},
          {"pooling", select.pooling == calibrate::Pooling::average ? "avg" : "max"}};
}

/// The plugin's name for how a layer is cut, and its settings (export/python/vllm, cuts.py).
json named(const char* method, json settings) {
  settings["method"] = method;
  return settings;
}

/// How each layer is cut; null for those that stay whole.
struct CutsOfLayers {
  const PartRequest& request;
  std::int64_t layers = request.document.model.layers;

  std::vector<json> all(const json& cut) const {
    return std::vector<json>(static_cast<std::size_t>(layers), cut);
  }
  std::vector<json> with_budgets(const calibrate::WindowBudget& select,
                                 const std::vector<std::int64_t>& budgets) const {
    std::vector<json> cuts;
    for (const auto budget : budgets)
      cuts.push_back(named("snapkv", window_scores(select, budget + select.window)));
    return cuts;
  }
  std::vector<json> windows() const {
    const auto keep = proximal(request);
    json settings = {{"initial", keep.initial},
                     {"recent", keep.recent},
                     {"rolling", request.theirs.policy.rolling}};
    std::vector<json> cuts;
    for (const bool trim : layers_to_trim(request))
      cuts.push_back(trim ? named("streaming", settings) : json());
    return cuts;
  }
  /// Lazy heads. Where all heads of a layer are lazy, it is a lazy layer.
  std::vector<json> windows_of_heads() const {
    const auto keep = proximal(request);
    const json settings = {{"initial", keep.initial}, {"recent", keep.recent}};
    std::vector<json> cuts;
    for (const auto& row : lazy_heads(request)) {
      json& cut = cuts.emplace_back();
      const auto lazy = std::count(row.begin(), row.end(), 1);
      if (lazy == 0) continue;
      const bool whole_layer = lazy == std::ssize(row);
      cut = named(whole_layer ? "streaming" : "heads", settings);
      if (whole_layer)
        cut["rolling"] = false;
      else
        cut["lazy"] = std::vector<bool>(row.begin(), row.end());
    }
    return cuts;
  }
  std::vector<json> operator()(const calibrate::Streaming&) const { return windows(); }
  std::vector<json> operator()(const calibrate::SimLayerKv& part) const {
    return form_of(part) == calibrate::Form::lazy_heads ? windows_of_heads() : windows();
  }
  std::vector<json> operator()(const calibrate::HeadKv& part) const {
    std::vector<json> cuts;
    for (auto budgets : head_budgets(request)) {
      for (auto& budget : budgets) budget += part.select.window;
      json cut = window_scores(part.select, budgets.front());
      const bool alike = std::all_of(budgets.begin(), budgets.end(),
                                     [&](const auto budget) { return budget == budgets.front(); });
      if (!alike) {
        cut.erase("budget");
        cut["budgets"] = budgets;
      }
      cuts.push_back(named(alike ? "snapkv" : "headkv", cut));
    }
    return cuts;
  }
  std::vector<json> operator()(const calibrate::LagKv& part) const {
    auto cuts = all(named("lagkv", {{"sink", part.sink},
                                    {"lag", part.lag},
                                    {"keep", part.keep()},
                                    {"variant", calibrate::variant_word(part.variant)}}));
    const auto whole = std::min(layers, kernels::first_layer_cut(part.variant));
    std::fill_n(cuts.begin(), whole, json());
    return cuts;
  }
  std::vector<json> operator()(const calibrate::DynamicKv& part) const {
    return with_budgets(part.select, budgets(request));
  }
  std::vector<json> operator()(const calibrate::SnapKv& part) const {
    const std::int64_t mean = part.select.budget - part.select.window;
    if (part.pyramid) return with_budgets(part.select, calibrate::pyramid_budgets(mean, layers));
    return all(named("snapkv", window_scores(part.select, part.select.budget)));
  }
  std::vector<json> operator()(const calibrate::ChunkKv& part) const {
    json settings = window_scores(part.select, part.select.budget);
    settings["chunk"] = part.chunk;
    return all(named("chunkkv", settings));
  }
  std::vector<json> operator()(const calibrate::H2o& part) const {
    return all(named("h2o", {{"budget", part.budget}, {"heavy", part.heaviest()}}));
  }
  std::vector<json> operator()(const calibrate::Tova& part) const {
    return all(named("tova", {{"budget", part.budget}}));
  }
  std::vector<json> operator()(const calibrate::KeyDiff& part) const {
    return all(named("keydiff", {{"budget", part.budget}}));
  }
  template <class Part>
  std::vector<json> operator()(const Part&) const {
    fail(ErrorCode::internal, "the plugin of vLLM is given a part that it does not know");
  }
};

/// Layers that are cut alike stand together.
json cuts_of(const PartRequest& request) {
  json out = json::array();
  std::vector<json> cuts;
  const auto& windows = request.document.model.windows;
  // Lazy layers stand before what selects in the others.
  for (const auto& part : request.theirs.policy.parts) {
    PartRequest of_part = request;
    of_part.part = part;
    const auto more = std::visit(CutsOfLayers{of_part}, part);
    cuts.resize(more.size());
    const bool selects = calibrate::traits_of(part).kind == calibrate::PartKind::selects;
    for (std::size_t l = 0; l < cuts.size(); ++l)
      if (cuts[l].is_null() && !(selects && !windows.empty() && windows[l] > 0)) cuts[l] = more[l];
  }
  if (std::all_of(cuts.begin(), cuts.end(), [](const json& cut) { return cut.is_null(); }))
    fail(ErrorCode::usage, "the policy cuts no layer, so there is nothing to tell ",
         request.runtime.title);
  std::vector<json> kinds;
  for (std::size_t l = 0; l < cuts.size(); ++l) {
    if (cuts[l].is_null()) continue;
    const auto kind = std::find(kinds.begin(), kinds.end(), cuts[l]) - kinds.begin();
    if (kind == std::ssize(kinds)) {
      kinds.push_back(cuts[l]);
      out.push_back(cuts[l]);
    }
    out[static_cast<std::size_t>(kind)]["layers"].push_back(l);
  }
  return out;
}

}  // namespace

Exported export_vllm(const PartRequest& request) {
  if (const auto* formats = std::get_if<calibrate::Precision>(&request.part))
    return formats_of_layers(request, *formats);
  const json cuts = cuts_of(request);
  const auto& model = request.document.model;
  const json policy = {{"model",
                        {{"layers", model.layers},
                         {"heads", model.heads},
                         {"kv_heads", model.kv_heads},
                         {"head_dim", model.head_dim}}},
                       {"cuts", cuts}};
  Exported out;
  out.files.push_back(
      {"vllm.yaml", yaml_text({{"additional-config", {{"kvatlas", policy}}},
                               {"block-size", request.runtime.page_tokens},
                               {"worker-extension-cls", "kvatlas_vllm.worker.KvatlasPolicy"}})});
  out.use =
      "pip install kvatlas_vllm-0.1.0-py3-none-any.whl   # './dev wheel' leaves it in build/\n"
      "vllm serve $MODEL --config vllm.yaml";
  if (const auto note = padding_note(cuts, model.layers); !note.empty()) out.notes.push_back(note);
  out.notes.push_back(
      "Without the plugin vLLM ends at start, for 'worker-extension-cls' names a class of it. Do "
      "not add --disable-hybrid-kv-cache-manager, with which no memory is freed.");
  return out;
}

}  // namespace kvatlas::exporting
