// SPDX-License-Identifier: Apache-2.0
// The windows of a policy's layers, compared with those that the model has by itself.
#include <algorithm>
#include <iterator>

#include "base/error.hpp"
#include "export/shared_impl.hpp"

namespace kvatlas::exporting {
namespace {

using nlohmann::json;

using Config = std::optional<json>;

bool has_text_config(const Config& config) {
  return config && config->contains("text_config") && config->at("text_config").is_object();
}

/// The fields of the language model; nullptr if there is no config.json.
const json* language_fields(const Config& config) {
  if (!config) return nullptr;
  return has_text_config(config) ? &config->at("text_config") : &*config;
}

std::int64_t whole_number(const json& fields, const char* key, std::int64_t missing) {
  const auto found = fields.find(key);
  if (found == fields.end() || found->is_null()) return missing;
  if (!found->is_number_integer() || found->get<std::int64_t>() < 0)
    fail(ErrorCode::unreadable, "config.json: ", key, " is ", printable(found->dump(), 80),
         ", expected a whole number");
  return found->get<std::int64_t>();
}

/// An architecture whose models have windows of their own.
struct OwnWindows {
  std::string_view architecture;
  std::int64_t period;        // the last of so many layers is full
  std::int64_t default_size;  // without a size in config.json; 0: no windows
  /// Why a full layer cannot be given a window; "" if it can.
  std::string_view full_layers_differ;
};
constexpr OwnWindows kOwnWindows[] = {
    {"cohere2", 4, 4096, "a layer with a window is rotated, and a full one is not"},
    {"exaone4", 4, 0, "a layer with a window is rotated, and a full one is not"},
    {"gemma2", 2, 4096, ""},
    {"gemma3", 6, 4096, "a layer with a window is rotated by another base"},
    {"gpt_oss", 2, 128, ""},
    {"olmo3", 4, 4096, "a layer with a window is rotated without the scaling of full ones"}};

const OwnWindows* windows_of_architecture(std::string_view architecture) {
  const auto* const found =
      std::find_if(std::begin(kOwnWindows), std::end(kOwnWindows),
                   [&](const OwnWindows& one) { return one.architecture == architecture; });
  return found == std::end(kOwnWindows) ? nullptr : found;
}

/// Whether the model itself gives the layer a window, if its config.json lists no layer types.
bool windows_itself(const json& fields, const std::string& architecture, std::int64_t layer) {
  if (const OwnWindows* own = windows_of_architecture(architecture)) {
    const auto period = whole_number(fields, "sliding_window_pattern",
                                     whole_number(fields, "_sliding_window_pattern", own->period));
    return period == 0 || (layer + 1) % period != 0;
  }
  if (is_qwen(architecture)) return layer >= whole_number(fields, "max_window_layers", 28);
  return true;
}

/// [layer], the size of the window that the model itself gives it; 0 if it has none.
std::vector<std::int64_t> own_windows(const json& fields, const std::string& architecture,
                                      std::int64_t layers) {
  std::vector<std::int64_t> own(static_cast<std::size_t>(layers), 0);
  const OwnWindows* const known = windows_of_architecture(architecture);
  const auto size = whole_number(fields, "sliding_window", known ? known->default_size : 0);
  // These models do not use the window in their config.json.
  if (architecture == "llama" ||
      (is_qwen(architecture) && fields.value("use_sliding_window", json()) != true))
    return own;
  const auto types = fields.find("layer_types");
  const bool listed = types != fields.end() && types->is_array();
  if (listed && types->size() != own.size())
    fail(ErrorCode::unreadable, "config.json: layer_types has ", types->size(),
         " entries, expected ", own.size());
  for (std::size_t layer = 0; layer < own.size(); ++layer)
    if (listed ? (*types)[layer] == "sliding_attention"
               : windows_itself(fields, architecture, static_cast<std::int64_t>(layer)))
      own[layer] = size;
  return own;
}

void check_layer(const PartRequest& request, const std::string& architecture, std::size_t layer,
                 bool lazy, std::int64_t own, std::int64_t size) {
  const auto refuse = [&](const auto&... why) {
    fail(ErrorCode::usage, request.runtime.title,
         " cannot run the policy on this checkpoint: ", why...);
  };
  if (!lazy && own > 0 && own != size)
    refuse("layer ", layer, " has a window of the model's own, of ", own,
           " tokens, and all windows have one size: calibrate with recent=", own);
  if (lazy && own > 0 && size > own)
    refuse("layer ", layer, " has a window of the model's own, of ", own,
           " tokens, and the policy's of ", size, " would widen it");
  const OwnWindows* const known = windows_of_architecture(architecture);
  if (lazy && own == 0 && known && !known->full_layers_differ.empty())
    refuse("layer ", layer, " is one of the model's full layers, and in this architecture ",
           known->full_layers_differ, ": only the layers that have a window can be trimmed");
}

}  // namespace

bool is_qwen(std::string_view architecture) {
  return architecture == "qwen2" || architecture == "qwen3";
}

std::string architecture_of(const calibrate::ModelInfo& model, const Config& config) {
  const json* fields = language_fields(config);
  if (!fields || !fields->value("model_type", json()).is_string()) return model.architecture;
  auto type = fields->at("model_type").get<std::string>();
  if (const auto end = type.rfind("_text"); end != type.npos && end + 5 == type.size())
    type.resize(end);
  return type;
}

std::string architecture_of(const PartRequest& request) {
  return architecture_of(request.document.model, request.config);
}

json placed_in_config(const PartRequest& request, const json& changes) {
  return has_text_config(request.config) ? json{{"text_config", changes}} : changes;
}

json window_fields(const Windows& windows) {
  return {{"layer_types", layer_types(windows.layers)}, {"sliding_window", windows.size}};
}

Windows windows_of(const PartRequest& request) {
  const auto architecture = architecture_of(request);
  const auto layers = request.document.model.layers;
  const json* fields = language_fields(request.config);
  if (!fields && windows_of_architecture(architecture))
    fail(ErrorCode::usage, "a model of architecture ", quoted(architecture),
         " has windows of its own, which the export must not contradict: give its config.json with "
         "--config");
  if (fields && whole_number(*fields, "num_hidden_layers", layers) != layers)
    fail(ErrorCode::usage, "config.json is of a model with ",
         whole_number(*fields, "num_hidden_layers", layers), " layers, and the policy of one with ",
         layers);
  Windows windows{lazy_layers(request),
                  calibrate::kept_window(request.theirs.policy.parts.at(0))->recent};
  if (windows.size < 2)
    fail(ErrorCode::usage,
         "a window of one token holds the query's own alone: ", request.runtime.title,
         " needs recent of 2 at least");
  if (std::count(windows.layers.begin(), windows.layers.end(), 1) == 0)
    fail(ErrorCode::usage, "the policy trims no layer, so there is nothing to export to ",
         request.runtime.title);
  if (!fields) return windows;
  const auto own = own_windows(*fields, architecture, layers);
  for (std::size_t layer = 0; layer < own.size(); ++layer) {
    check_layer(request, architecture, layer, windows.layers[layer] != 0, own[layer], windows.size);
    if (own[layer] > 0) windows.layers[layer] = 1;
  }
  return windows;
}

}  // namespace kvatlas::exporting
