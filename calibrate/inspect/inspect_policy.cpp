// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <fstream>
#include <iostream>
#include <memory>
#include <numeric>

#include "analyzer/config/cache_card.hpp"
#include "analyzer/model/model_file.hpp"
#include "analyzer/profile/model_text.hpp"
#include "base/bytes.hpp"
#include "base/error.hpp"
#include "base/json_text.hpp"
#include "base/plain_text.hpp"
#include "base/text_count.hpp"
#include "calibrate/inspect/commands.hpp"
#include "calibrate/inspect/inspect_bytes.hpp"
#include "calibrate/policy/method.hpp"
#include "calibrate/policy/policy.hpp"
#include "calibrate/rules/policy_reports.hpp"

namespace kvatlas::calibrate {
namespace {

using nlohmann::json;

void line(const std::string& label, const std::string& value, std::size_t indent = 2) {
  const std::size_t width = std::max<std::size_t>(label.size(), 14);
  std::cout << row_text({{label, width}, {value, 100 - indent - width - 2}}, indent);
}

std::string joined(const std::vector<std::string>& words, const char* separator = ", ") {
  return join(words, separator, [](const std::string& word) { return printable(word); });
}

/// The layers that `is_so` holds of.
template <class IsSo>
std::vector<std::int64_t> layers_that(std::size_t layers, IsSo is_so) {
  std::vector<std::int64_t> out;
  for (std::size_t l = 0; l < layers; ++l)
    if (is_so(l)) out.push_back(static_cast<std::int64_t>(l));
  return out;
}

/// What was found for a part, a line each.
struct PrintResult {
  const ModelInfo& model;
  const json& section;

  void operator()(const SimLayerKv& part) const {
    if (!part.fixed) return print_static_view();
    std::vector<std::int64_t> whole;
    std::int64_t heads = 0;
    for (std::size_t l = 0; l < part.fixed->size(); ++l) {
      const auto& row = (*part.fixed)[l];
      const auto lazy = std::count(row.begin(), row.end(), 1);
      const auto size = static_cast<std::int64_t>(row.size());
      heads += size == 1 ? lazy * model.kv_heads : lazy;
      if (lazy == size) whole.push_back(static_cast<std::int64_t>(l));
    }
    line("lazy layers", counted(whole), 4);
    if (heads != static_cast<std::int64_t>(whole.size()) * model.kv_heads)
      line("lazy KV heads", str(heads, " of ", model.layers * model.kv_heads), 4);
  }
  void operator()(const Pod& part) const {
    if (part.lowest.empty()) return;
    const auto shares = [](const auto& row, std::size_t layer) {
      return row[layer] != static_cast<std::int64_t>(layer);
    };
    std::int64_t sharing = 0;
    for (const auto& row : part.lowest)
      for (std::size_t l = 0; l < row.size(); ++l) sharing += shares(row, l);
    const auto in = [&](auto how_many) {
      return layers_that(part.lowest.front().size(), [&](std::size_t l) {
        return how_many(part.lowest.begin(), part.lowest.end(),
                        [&](const auto& row) { return shares(row, l); });
      });
    };
    const auto some = in([](auto... of) { return std::any_of(of...); });
    const auto all = in([](auto... of) { return std::all_of(of...); });
    line("sharing layers", str(counted(some), "; with all heads: ", ranges_text(all)), 4);
    line("sharing heads",
         str(sharing, " of ", model.layers * model.heads, " query heads read a lower layer's keys"),
         4);
  }
  void operator()(const DynamicKv& part) const {
    if (part.fixed) print_budgets(*part.fixed, "a layer", part.select.window);
  }
  void operator()(const HeadKv& part) const {
    if (!part.fixed) return;
    std::vector<std::int64_t> all;
    for (const auto& row : *part.fixed) all.insert(all.end(), row.begin(), row.end());
    print_budgets(all, "a KV head", part.select.window);
  }
  void operator()(const LagKv& part) const {
    line("kept", str(part.keep(), " of ", part.lag, " tokens a partition"), 4);
  }
  void operator()(const Precision& part) const {
    if (!part.fixed && part.skip.empty()) return;
    const auto formats = layer_formats(part, model.layers);
    print_formats(KvSide::keys, formats, &KvFormats::keys);
    print_formats(KvSide::values, formats, &KvFormats::values);
  }
  template <class Other>
  void operator()(const Other&) const {}

 private:
  std::string counted(const std::vector<std::int64_t>& layers) const {
    return str(ranges_text(layers), " (", layers.size(), " of ", model.layers, ")");
  }
  /// The layers that are lazy for most inputs, where each input decides anew.
  void print_static_view() const {
    const json flags = section.value("static", json::object()).value("lazy_layers", json::array());
    if (flags.empty()) return;
    const auto lazy = layers_that(flags.size(), [&](std::size_t l) { return flags[l] == true; });
    line("lazy layers", "by input; for most inputs " + counted(lazy), 4);
  }
  /// "int4 (5 bits a value): 0-3, 7" for each format.
  void print_formats(KvSide which, const std::vector<KvFormats>& formats,
                     KvFormat KvFormats::*side) const {
    std::string text;
    for (std::size_t f = 0; f < kKvFormats.size(); ++f) {
      const auto layers = layers_that(formats.size(), [&](std::size_t l) {
        return formats[l].*side == static_cast<KvFormat>(f);
      });
      if (!layers.empty())
        text += str(text.empty() ? "" : "; ", kKvFormats[f].word, " (",
                    8 * bytes_of_row(static_cast<KvFormat>(f), which, model.head_dim) /
                        static_cast<double>(model.head_dim),
                    " bits a value): ", ranges_text(layers));
    }
    line(which == KvSide::keys ? "layers' keys" : "layers' values", text, 4);
  }
  static void print_budgets(const std::vector<std::int64_t>& budgets, const char* of,
                            std::int64_t window) {
    if (budgets.empty()) return;
    const auto [least, most] = std::minmax_element(budgets.begin(), budgets.end());
    const auto sum = std::accumulate(budgets.begin(), budgets.end(), std::int64_t{0});
    line("budgets",
         str(*least, *most > *least ? str(" to ", *most) : "", " tokens ", of, ", ",
             static_cast<double>(sum) / static_cast<double>(budgets.size()),
             " in the mean, and the window of ", window),
         4);
  }
};

void print_reports(const json& section) {
  if (section.contains("savings") && section.at("savings").is_array())
    for (const auto& at : section.at("savings")) {
      if (!at.is_object() || !at.contains("length")) continue;
      std::string saved;
      for (const auto& [name, value] : at.items())
        if (name != "length" && value.is_primitive())
          saved += str(saved.empty() ? "" : ", ", printable(name), " ", printable(value.dump()));
      line(str("at ", printable(at.at("length").dump()), " tokens"), saved, 4);
    }
  std::vector<std::string> others;
  for (const auto& [name, value] : section.items())
    if (name != "name" && name != "settings" && name != "result" && name != "savings")
      others.push_back(name);
  if (!others.empty()) line("more", joined(others) + " (--json prints them)", 4);
}

void print_section(const Document& document, const std::string& name) {
  const auto& section = document.sections.at(name);
  const Part part = part_of(name, section);
  std::string settings = section.value("name", "");
  const json all = method::kHeads.is(name) ? section : section_of(part);
  const auto* formats = std::get_if<Precision>(&part);
  for (const auto& [key, value] : all.at("settings").items()) {
    // Where each layer has its own, the formats of all layers are nobody's.
    if (formats && formats->fixed && (key == "keys" || key == "values")) continue;
    settings += str(settings.empty() ? "" : ", ", key, " ",
                    printable(value.is_string() ? value.get<std::string>() : value.dump()));
  }
  line(name, settings);
  std::visit(PrintResult{document.model, section}, part);
  if (method::kDynamicKv.is(name) && section.contains("result") &&
      section.at("result").contains("tasks")) {
    std::vector<std::string> tasks;
    for (const auto& [task, budgets] : section.at("result").at("tasks").items())
      tasks.push_back(task);
    line("by task", joined(tasks), 4);
  }
  print_reports(section);
}

void print_document(const Document& document) {
  const ModelInfo& model = document.model;
  const Provenance& from = document.provenance;
  std::cout << "policy for " << (model.name.empty() ? "a model" : printable(model.name)) << '\n';
  if (!model.architecture.empty()) line("architecture", printable(model.architecture));
  line("layers", profile::layers_text(model.layers, model.layer_numbers));
  line("heads", str(model.heads, " query, ", model.kv_heads, " key/value, of ", model.head_dim,
                    " dimensions"));
  if (const auto cache = profile::cache_text(model.cached_values, model.latent_rank);
      !cache.empty())
    line("cache", cache);
  if (!model.fingerprint.empty()) line("fingerprint", printable(model.fingerprint));
  if (from.samples > 0)
    line("from", str(count_of(from.samples, "sample", "samples"),
                     from.tasks.empty() ? "" : " of " + joined(from.tasks),
                     from.lengths.empty() ? "" : ", tokens " + list_str(from.lengths)));
  if (!from.profile.empty()) line("profile", printable(from.profile));
  if (!from.tool_version.empty()) line("by kvatlas", printable(from.tool_version));
  if (!document.runtime.empty()) line("for runtime", printable(document.runtime));
  if (document.kv_bits != 16)
    line("stored in",
         str(document.kv_bits, " bits",
             document.kv_residual > 0 ? str(", the last ", document.kv_residual, " tokens in 16")
                                      : ""));
  if (!document.compose.empty()) line("composed of", joined(document.compose, " + "));
  for (const auto& [name, section] : document.sections.items()) print_section(document, name);
  if (!document.compared.empty())
    line("compared with", join(document.compared, ", ", [](const json& entry) {
           return printable(entry.at("policy").get<std::string>()) +
                  (entry.contains("runtime")
                       ? " in " + printable(entry.at("runtime").get<std::string>())
                       : "");
         }));
  if (!document.unknown.empty())
    line("newer", printable(document.unknown.at("schema").get<std::string>()) +
                      ", of which not all is known here");
}

/// Whether it begins as a policy as text does, or has settings as only such texts have them, and is
/// no file.
bool is_policy_text(const std::string& path) try {
  if (path.ends_with(".json") || std::filesystem::exists(path)) return false;
  if (const auto settings = path.find(':');
      settings != path.npos && path.find('=', settings) != path.npos)
    return true;
  parse_policy(path.substr(0, path.find_first_of(":+")));
  return true;
} catch (const Error&) {
  return false;
}

/// Whether it is one, or a file that begins as a policy document does, as JSON.
bool is_policy(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  char first = 0;
  return (file >> first && first == '{') || is_policy_text(path);
}

/// The model that a header describes.
ModelInfo model_of(const model::CacheCard& card) {
  ModelInfo out;
  out.name = card.name;
  out.architecture = card.architecture;
  const auto& first = card.layers.front();
  for (const auto& layer : card.layers) {
    if (layer.values_per_token() != 2 * first.kv_heads * first.key_dim)
      fail(ErrorCode::usage,
           "a policy as text is counted for models whose layers all hold a key and "
           "a value for as many heads: ",
           printable(card.file), " has others");
    out.windows.push_back(layer.tokens);
  }
  out.layers = std::ssize(card.layers);
  out.heads = card.heads;
  out.kv_heads = first.kv_heads;
  out.head_dim = first.key_dim;
  out.windows = own_windows(out.windows);
  return out;
}

/// The header of the model that a policy as text is of.
model::CacheCard header_for(const std::string& policy, const InspectOptions& o) {
  if (o.model.empty() || o.context == 0)
    fail(
        ErrorCode::usage, quoted(policy, 200),
        " is a policy as text: give the model with --model and the prompt's tokens with --context, "
        "and its memory is counted");
  return model::read_cache_card(o.model);
}

/// `header`: of a policy as text, the model's.
BytesQuestion settled(const InspectOptions& o, const Document& document,
                      const std::optional<model::CacheCard>& header) {
  BytesQuestion question;
  question.context = o.context;
  question.new_tokens = o.new_tokens;
  question.batch = o.batch;
  question.runtime = o.runtime;
  if (!o.weights.empty()) question.weights = static_cast<double>(parse_bytes(o.weights));
  if (!o.memory.empty()) question.memory = static_cast<double>(parse_bytes(o.memory));
  if (header) {
    if (o.weights.empty()) question.weights = static_cast<double>(header->weight_bytes);
  } else if (!o.model.empty()) {
    if (!o.weights.empty())
      fail(ErrorCode::usage, "--model says what the weights take, and so does --weights: give one");
    const auto model = model::ModelFile::open(o.model);
    if (model->config().n_layers != document.model.layers ||
        model->config().n_kv_heads != document.model.kv_heads)
      fail(ErrorCode::usage, "the policy is of a model of ", document.model.layers, " layers and ",
           document.model.kv_heads, " KV heads; ", printable(o.model), " has ",
           model->config().n_layers, " and ", model->config().n_kv_heads);
    question.weights = static_cast<double>(model->stored_bytes());
  }
  return question;
}

void inspect_policy(const std::string& path, const InspectOptions& o) {
  std::optional<Policy> policy;
  if (is_policy_text(path)) policy = parse_policy(path);
  if (policy && o.as_json && o.model.empty() && o.context == 0) {
    // The document is any model's: one that a document can have stands there and goes again.
    ModelInfo any;
    any.layers = any.heads = any.kv_heads = any.head_dim = 1;
    auto document = parse_json(document_text(document_of(*policy, any)));
    document.erase("model");
    std::cout << canonical_json(document);
    return;
  }
  std::optional<model::CacheCard> header;
  if (policy) header = header_for(path, o);
  const Document document = policy ? document_of(*policy, model_of(*header)) : read_document(path);
  if (o.context == 0) {
    if (o.as_json)
      std::cout << document_text(document);
    else
      print_document(document);
    return;
  }
  const BytesAnswer answer = policy_bytes(document, settled(o, document, header));
  if (o.as_json) {
    std::cout << canonical_json(bytes_json(answer));
    return;
  }
  for (const auto& table : bytes_tables(answer)) std::cout << table_text(table) << '\n';
  for (const auto& note : answer.notes) std::cerr << "kvatlas: note: " << note << '\n';
}

}  // namespace

InspectedKind inspected_policies() { return {is_policy, inspect_policy}; }

}  // namespace kvatlas::calibrate
