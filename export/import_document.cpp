// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.hpp"
#include "base/str.hpp"
#include "export/import_impl.hpp"

namespace kvatlas::importing {
namespace {

using calibrate::LazyHeads;
using calibrate::ModelInfo;
using nlohmann::json;

constexpr std::size_t kMostLayers = 4096, kMostHeads = 4096, kMostCells = std::size_t{1} << 20;

std::int64_t whole_number(const json& value, std::int64_t least, std::int64_t most,
                          const std::string& place, const std::string& expected) {
  const double number = value.is_number() ? value.get<double>() : -1;
  if (!(number >= static_cast<double>(least)) || number > static_cast<double>(most) ||
      number != std::floor(number))
    fail(ErrorCode::unreadable, place, ": found ", printable(value.dump(-1, ' ', true), 60),
         ", expected ", expected);
  return static_cast<std::int64_t>(number);
}

/// A whole number of config.json; 0 if it is absent or null.
std::int64_t count_of(const json& config, const char* key, std::int64_t most) {
  const auto at = config.find(key);
  if (at == config.end() || at->is_null()) return 0;
  return whole_number(*at, 1, most, str("'", key, "'"), str("a whole number from 1 to ", most));
}

std::string text_of(const json& config, const char* key) {
  const auto at = config.find(key);
  return at != config.end() && at->is_string() ? at->get<std::string>() : std::string();
}

/// Takes over the file's number, which is 0 if the file does not give it. Error(unreadable) if the
/// number is known already and differs.
void join(std::int64_t& known, std::int64_t of_file, const char* what) {
  if (of_file != 0 && known != 0 && known != of_file)
    fail(ErrorCode::unreadable, "the file has ", of_file, ' ', what, ", the model ", known);
  if (of_file != 0) known = of_file;
}

/// The same for a number that must be known in the end: Error(usage) names the option that gives
/// it.
void complete(std::int64_t& known, std::int64_t of_file, const char* what, const char* option) {
  join(known, of_file, what);
  if (known == 0)
    fail(ErrorCode::usage, "the file does not say how many ", what, " the model has: give ", option,
         ", or the checkpoint's config.json with --config");
}

}  // namespace

ModelInfo model_of_config(const json& config) {
  if (!config.is_object())
    fail(ErrorCode::unreadable, "expected a JSON object, a checkpoint's config.json");
  // In models that see images, the numbers of the language model lie one level deeper.
  const auto inner = config.find("text_config");
  const json& text = inner != config.end() && inner->is_object() ? *inner : config;
  ModelInfo model;
  model.layers = count_of(text, "num_hidden_layers", static_cast<std::int64_t>(kMostLayers));
  model.heads = count_of(text, "num_attention_heads", static_cast<std::int64_t>(kMostHeads));
  model.kv_heads = count_of(text, "num_key_value_heads", static_cast<std::int64_t>(kMostHeads));
  if (model.kv_heads == 0) model.kv_heads = model.heads;
  model.head_dim = count_of(text, "head_dim", 65536);
  const auto hidden = count_of(text, "hidden_size", std::int64_t{1} << 24);
  if (model.head_dim == 0 && model.heads != 0 && hidden % model.heads == 0)
    model.head_dim = hidden / model.heads;
  model.architecture = text_of(text, "model_type");
  if (model.architecture == "gemma3_text") model.architecture = "gemma3";
  model.name = text_of(config, "_name_or_path");
  return model;
}

void check_shape(std::size_t layers, std::size_t heads) {
  if (layers < 1 || heads < 1) fail(ErrorCode::unreadable, "the file names no heads");
  if (layers > kMostLayers || heads > kMostHeads || layers * heads > kMostCells)
    fail(ErrorCode::unreadable, "found ", layers, " layers of ", heads, " heads, expected at most ",
         kMostLayers, " layers and ", kMostCells, " heads in all");
}

std::int64_t tokens_of(const json& value, std::int64_t least, const std::string& place) {
  return whole_number(value, least, std::int64_t{1} << 24, place, "a number of tokens");
}

ModelInfo completed_model(const ImportRequest& request, std::int64_t layers, std::int64_t heads,
                          std::int64_t kv_heads) {
  ModelInfo model = request.model;
  join(model.layers, layers, "layers");
  complete(model.heads, heads, "query heads a layer", "--heads");
  complete(model.kv_heads, kv_heads, "KV heads a layer", "--kv-heads");
  if (model.heads % model.kv_heads != 0)
    fail(ErrorCode::usage, "the model has ", model.heads, " query heads and ", model.kv_heads,
         " KV heads a layer, expected a multiple");
  if (model.head_dim == 0)
    fail(ErrorCode::usage,
         "the file does not say how many dimensions a head has: give --head-dim, or the "
         "checkpoint's config.json with --config");
  check_shape(static_cast<std::size_t>(model.layers), static_cast<std::size_t>(model.heads));
  return model;
}

LazyHeads lowest(const HeadNumbers& numbers, std::size_t count) {
  LazyHeads lazy(numbers.size(), std::vector<std::uint8_t>(numbers.front().size(), 0));
  const std::size_t heads = numbers.front().size();
  std::vector<std::size_t> request(numbers.size() * heads);
  std::iota(request.begin(), request.end(), std::size_t{0});
  std::stable_sort(request.begin(), request.end(), [&](std::size_t a, std::size_t b) {
    return numbers[a / heads][a % heads] < numbers[b / heads][b % heads];
  });
  for (std::size_t i = 0; i < std::min(count, request.size()); ++i)
    lazy[request[i] / heads][request[i] % heads] = 1;
  return lazy;
}

LazyHeads below(const HeadNumbers& numbers, double threshold) {
  LazyHeads lazy;
  for (const auto& row : numbers) {
    auto& flags = lazy.emplace_back();
    for (const double number : row) flags.push_back(number < threshold ? 1 : 0);
  }
  return lazy;
}

calibrate::Document document_of(const ImportRequest& request, const ModelInfo& model,
                                const LazyHeads& lazy, calibrate::Proximity file) {
  json rows = json::array();
  for (const auto& row : lazy) {
    json& flags = rows.emplace_back(json::array());
    for (const auto flag : row) flags.push_back(flag != 0);
  }
  calibrate::Document document;
  document.model = model;
  document.provenance.tool_version = request.tool_version;
  document.sections["heads"] = {{"settings",
                                 {{"initial", request.initial.value_or(file.initial)},
                                  {"recent", request.recent.value_or(file.recent)}}},
                                {"result", {{"lazy_heads", std::move(rows)}}}};
  // Written and read again, so that it passes all checks of a document that is read from a file.
  return calibrate::parse_document(calibrate::document_text(document));
}

}  // namespace kvatlas::importing
