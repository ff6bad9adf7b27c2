// SPDX-License-Identifier: Apache-2.0
#include "analyzer/profile/inspect_profile.hpp"

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <map>
#include <utility>

#include <nlohmann/json.hpp>

#include "analyzer/profile/model_text.hpp"
#include "analyzer/profile/profile.hpp"
#include "base/bytes.hpp"
#include "base/json_text.hpp"
#include "base/plain_text.hpp"
#include "base/str.hpp"
#include "base/text_count.hpp"

namespace kvatlas {
namespace {

using json = nlohmann::ordered_json;
using profile::Description;
using profile::Reader;

std::int64_t samples_with(const Reader& file, const Description& array) {
  const auto all = static_cast<std::int64_t>(file.samples().size());
  if (!file.has(array.name)) return 0;
  if (!array.sizes.empty()) return all;
  std::int64_t count = 0;
  for (std::size_t i = 0; i < file.samples().size(); ++i) count += file.has(i, array.name);
  return count;
}

json samples_json(const Reader& file) {
  // Sorted by task, then by the length that was asked for; prompts of no set length by their own.
  std::map<std::pair<std::string, std::int64_t>, std::int64_t> counts;
  for (const profile::Sample& sample : file.samples())
    ++counts[{sample.task, sample.length > 0 ? sample.length : sample.n_tokens}];
  json list = json::array();
  for (const auto& [kind, count] : counts)
    list.push_back({{"task", kind.first}, {"length", kind.second}, {"samples", count}});
  return list;
}

std::size_t texts_of(const Reader& file) {
  std::vector<std::string> groups;
  for (const profile::Sample& sample : file.samples()) groups.push_back(sample.group);
  return count_texts(groups);
}

std::int64_t samples_without_scoring(const Reader& file) {
  return std::count_if(file.samples().begin(), file.samples().end(),
                       [](const profile::Sample& sample) { return !sample.has_scoring; });
}

json arrays_json(const Reader& file) {
  json list = json::array();
  for (const Description& array : file.header().arrays)
    list.push_back({{"name", array.name},
                    {"axes", array.axes},
                    {"sizes", array.sizes},
                    {"type", profile::type_name(array.type)},
                    {"unit", array.unit},
                    {"meaning", array.meaning},
                    {"samples", samples_with(file, array)}});
  return list;
}

json profile_card(const std::string& path, const Reader& file) {
  const profile::Header& header = file.header();
  json axes = json::object();
  for (const auto& table : header.axes) axes[table.axis] = table.labels;
  return {{"file", path},
          {"format", "kvatlas profile"},
          {"bytes", std::filesystem::file_size(path)},
          {"tool_version", header.tool_version},
          {"complete", file.complete()},
          {"samples", file.samples().size()},
          {"texts", texts_of(file)},
          {"planned_samples", header.planned_samples},
          {"model",
           {{"name", header.model_name},
            {"architecture", header.architecture},
            {"fingerprint", header.model_fingerprint},
            {"tokenizer_fingerprint", header.tokenizer_fingerprint},
            {"layers", header.n_layers},
            {"heads", header.n_heads},
            {"kv_heads", header.n_kv_heads},
            {"head_dim", header.head_dim},
            {"layer_numbers", header.layer_numbers},
            {"cached_values", header.cached_values},
            {"latent_rank", header.latent_rank},
            {"vocab_size", header.vocab_size},
            {"context_length", header.context_length}}},
          {"backend", header.backend},
          {"capture", parse_json(header.capture)},
          {"prompts", parse_json(header.prompts)},
          {"samples_by_task", samples_json(file)},
          {"samples_without_scoring", samples_without_scoring(file)},
          {"axes", axes},
          {"arrays", arrays_json(file)}};
}

/// "needle/prose" for a list; words have no quotes.
std::string value_text(const json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_array() && !value.empty()) return join(value, "/", value_text);
  return json_text(value);
}

/// "maps.block = 64, rows = 64" of nested settings.
std::string settings_text(const json& settings, const std::string& prefix = {}) {
  return join(settings.items(), ", ", [&](const auto& of) {
    const json& value = of.value();
    return value.is_object() && !value.empty() ? settings_text(value, prefix + of.key() + ".")
                                               : prefix + of.key() + " = " + value_text(value);
  });
}

/// What says most of the settings stands first, and what is too long for a line is in the JSON.
std::string shortened_settings(json settings) {
  if (!settings.is_object()) return "none";
  settings.erase("fingerprint");
  json ordered = json::object();
  for (const char* first : {"capture", "tasks", "lengths", "depths", "seeds"})
    if (settings.contains(first)) {
      ordered[first] = settings[first];
      settings.erase(first);
    }
  ordered.update(settings);
  const std::string text = settings_text(ordered);
  return text.empty() ? "none" : printable(text, 77);
}

/// "map/mean" for "map/mean/3"; a name that does not end in a number as it is.
std::string without_number(const std::string& name) {
  const auto last = name.find_last_not_of("0123456789");
  const bool numbered = last != name.npos && last + 1 < name.size() && name[last] == '/';
  return numbered ? name.substr(0, last) : name;
}

void print_card(const json& card, const profile::Header& header) {
  const auto line = [](const std::string& label, const auto& value) {
    std::cout << "  " << label << std::string(label.size() < 18 ? 18 - label.size() : 1, ' ')
              << value << '\n';
  };
  const auto shown = [](const std::string& text) {
    return text.empty() ? std::string("none") : printable(text, 300);
  };
  const auto samples = card.at("samples").get<std::size_t>();
  const std::string texts = of_texts(samples, card.at("texts").get<std::size_t>());
  std::cout << "profile of " << shown(header.model_name) << '\n';
  line("file", printable(card.at("file").get<std::string>(), 300));
  line("size", bytes_str(card.at("bytes").get<std::int64_t>()));
  line("written by", "kvatlas " + shown(header.tool_version));
  line("samples", card.at("complete").get<bool>()
                      ? str(samples, texts, ", complete")
                      : str(samples, " of ", header.planned_samples, ", unfinished"));
  for (const auto& kind : card.at("samples_by_task"))
    line("", str(kind.at("samples").get<std::int64_t>(), " x ",
                 shown(kind.at("task").get<std::string>()), ", ",
                 kind.at("length").get<std::int64_t>(), " tokens"));
  if (const auto count = card.at("samples_without_scoring").get<std::int64_t>(); count > 0)
    line("", str(count, " of schema 1.0, without group, metric, classes and language"));
  line("model", str(shown(header.architecture), ", ", count_of(header.n_layers, "layer", "layers"),
                    ", ", header.n_heads, " query and ", header.n_kv_heads, " key/value heads of ",
                    header.head_dim, " dimensions"));
  if (!header.layer_numbers.empty())
    line("layers", profile::layers_text(header.n_layers, header.layer_numbers));
  if (const auto cache = profile::cache_text(header.cached_values, header.latent_rank);
      !cache.empty())
    line("cache", cache);
  line("fingerprint", shown(header.model_fingerprint));
  line("tokenizer", shown(header.tokenizer_fingerprint));
  line("backend", shown(header.backend));
  line("capture", shortened_settings(card.at("capture")));
  line("prompts", shortened_settings(card.at("prompts")));
  std::cout << "  captured\n";
  std::map<std::string, int> members;  // levels of a map and layers of raw data are told together
  for (const auto& array : card.at("arrays"))
    if (array.at("samples").get<std::int64_t>() > 0)
      ++members[without_number(array.at("name").get<std::string>())];
  for (const auto& array : card.at("arrays")) {
    if (array.at("samples").get<std::int64_t>() == 0) continue;
    const auto name = array.at("name").get<std::string>(), group = without_number(name);
    const int count = std::exchange(members[group], 0);
    if (count == 0) continue;  // told with the first
    const std::string axes =
        join(array.at("axes"), " x ", [](const json& axis) { return axis.get<std::string>(); });
    std::cout << "    "
              << printable(
                     str(count > 1 ? str(group, "/*, ", count, " of them") : name, ": ", axes, ", ",
                         array.at("unit").get<std::string>(), ", in ",
                         count_of(array.at("samples").get<std::int64_t>(), "sample", "samples")),
                     300)
              << '\n';
  }
}

}  // namespace

void inspect_profile(const std::string& path, bool as_json) {
  const Reader file(path);
  const json card = profile_card(path, file);
  if (as_json)
    std::cout << json_text(card, 2) << '\n';
  else
    print_card(card, file.header());
}

}  // namespace kvatlas
