// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <iostream>
#include <limits>
#include <map>
#include <memory>

#include <nlohmann/json.hpp>

#include "analyzer/model/chat.hpp"
#include "analyzer/model/model_file.hpp"
#include "analyzer/profile/commands.hpp"
#include "analyzer/profile/inspect_profile.hpp"
#include "analyzer/profile/profile.hpp"
#include "base/bytes.hpp"
#include "base/error.hpp"
#include "base/options.hpp"
#include "base/plain_text.hpp"

namespace kvatlas {
namespace {

using json = nlohmann::ordered_json;

constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();

/// Sums and products of sizes that a file merely claims end at kMost.
std::int64_t bounded_sum(std::int64_t a, std::int64_t b) {
  std::int64_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? kMost : sum;
}
std::int64_t bounded_product(std::int64_t a, std::int64_t b) {
  std::int64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? kMost : product;
}

/// The bytes of a token in one layer, with keys and values of 16 bits.
std::int64_t layer_bytes_per_token(const model::Config& config) {
  return 2 * 2 * config.n_kv_heads * config.head_dim;
}

/// The bytes of all layers. A layer with a window holds no more tokens than that.
std::int64_t kv_bytes(const model::Config& config, std::int64_t tokens) {
  std::int64_t bytes = 0;
  for (const auto window : config.window)
    bytes = bounded_sum(bytes, bounded_product(layer_bytes_per_token(config),
                                               profile::held_tokens(window, tokens)));
  return bytes;
}

std::string rope_text(const model::Rope& rope) {
  std::string text = str(model::rope_kind_name(rope.kind), ", theta ", rope.theta);
  if (rope.kind != model::RopeKind::plain && rope.factor != 1.0)
    text += str(", factor ", rope.factor);
  if (rope.original_context > 0) text += str(", trained on ", rope.original_context, " positions");
  if (!rope.divisors.empty()) text += ", with factors from the file";
  return text;
}

std::string window_text(const model::Config& config) {
  std::map<std::int64_t, int> layers;
  for (auto window : config.window) ++layers[window];
  return join(layers, ", ", [](const auto& of) {
    return str(of.first > 0 ? str(of.first, " tokens") : "all tokens", " in ", of.second,
               of.second == 1 ? " layer" : " layers");
  });
}

std::string chat_text(const model::Tokenizer* tokenizer) {
  if (!tokenizer || !tokenizer->chat_template()) return "none";
  const auto format = model::recognise_chat_format(*tokenizer);
  return format ? model::chat_format_name(*format) : "a template that kvatlas does not know";
}

json model_card(const model::ModelFile& model) {
  const model::Config& c = model.config();
  std::map<std::string, std::pair<std::int64_t, std::int64_t>> types;  // tensors, bytes
  std::int64_t parameters = 0;
  for (const auto& tensor : model.tensors()) {
    parameters = bounded_sum(parameters, model::value_count(tensor.shape).value_or(kMost));
    auto& [count, total] = types[model::type_name(tensor)];
    ++count;
    total = bounded_sum(total, static_cast<std::int64_t>(tensor.bytes.size()));
  }
  json stored = json::object();
  for (const auto& [name, sums] : types)
    stored[name] = {{"tensors", sums.first}, {"bytes", sums.second}};
  const model::Tokenizer* tokenizer = model.tokenizer().get();
  return {{"file", model.path().string()},
          {"format", model.format()},
          {"name", c.name},
          {"architecture", model::architecture_name(c.architecture)},
          {"layers", c.n_layers},
          {"heads", c.n_heads},
          {"kv_heads", c.n_kv_heads},
          {"head_dim", c.head_dim},
          {"hidden_size", c.hidden_size},
          {"intermediate_size", c.intermediate_size},
          {"vocab_size", c.vocab_size},
          {"context_length", c.context_length},
          {"rope", rope_text(c.rope)},
          {"local_rope", c.local_rope ? json(rope_text(*c.local_rope)) : json(nullptr)},
          {"attention", window_text(c)},
          {"tied_embeddings", c.tied_embeddings},
          {"parameters", parameters},
          {"stored_bytes", model.stored_bytes()},
          {"stored_types", stored},
          {"kv_cache_bytes_per_token", c.n_layers * layer_bytes_per_token(c)},
          {"kv_cache_bytes_at_context", kv_bytes(c, c.context_length)},
          {"tokenizer_vocab_size", tokenizer ? json(tokenizer->vocab_size()) : json(nullptr)},
          {"chat", chat_text(tokenizer)},
          {"fingerprint", model.fingerprint()}};
}

void print_card(const json& card, const model::Config& config,
                const std::string& tokenizer_problem) {
  const auto line = [](const char* label, const auto& value) {
    std::cout << "  " << label << std::string(18 - std::string(label).size(), ' ') << value << '\n';
  };
  const auto whole = [&](const char* key) { return card.at(key).get<std::int64_t>(); };
  const auto text = [&](const char* key) {
    return printable(card.at(key).get<std::string>(), 200);
  };
  std::cout << (config.name.empty() ? "model" : printable(config.name)) << '\n';
  line("file", text("file"));
  line("format", text("format"));
  line("architecture", text("architecture"));
  line("layers", whole("layers"));
  line("heads", str(whole("heads"), " query, ", whole("kv_heads"), " key/value, of ",
                    whole("head_dim"), " dimensions"));
  line("hidden size", str(whole("hidden_size"), ", feed-forward ", whole("intermediate_size")));
  line("vocabulary",
       str(whole("vocab_size"), config.tied_embeddings ? ", output tied to embeddings" : ""));
  line("context", str(whole("context_length"), " tokens"));
  line("rope", text("rope"));
  if (config.local_rope) line("rope, windowed", text("local_rope"));
  line("attention sees", text("attention"));
  line("parameters", str(static_cast<double>(whole("parameters")) / 1e6, " million"));
  std::string stored;
  for (const auto& [name, sums] : card.at("stored_types").items())
    stored += str(stored.empty() ? "" : ", ", sums.at("tensors").get<int>(), " ", name);
  line("stored", str(bytes_str(whole("stored_bytes")), " (", stored, ")"));
  line("KV cache",
       str(bytes_str(whole("kv_cache_bytes_per_token")), " a token at 16 bits, ",
           bytes_str(whole("kv_cache_bytes_at_context")), " at full context",
           kv_bytes(config, config.context_length) <
                   bounded_product(whole("kv_cache_bytes_per_token"), config.context_length)
               ? ", where windows hold their tokens alone"
               : ""));
  const auto& tokens = card.at("tokenizer_vocab_size");
  line("tokenizer", !tokens.is_null() ? str(tokens.get<std::int64_t>(), " tokens")
                    : tokenizer_problem.empty()
                        ? "none"
                        : "none that can be used: " + printable(tokenizer_problem, 200));
  line("chat format", text("chat"));
  line("fingerprint", text("fingerprint"));
}

void inspect_model(const std::string& path, bool as_json) {
  const auto model = model::ModelFile::open(path);
  const json card = model_card(*model);
  if (as_json)
    std::cout << card.dump(2, ' ', false, json::error_handler_t::replace) << '\n';
  else
    print_card(card, model->config(), model->tokenizer_problem());
}

void inspect(const std::string& path, bool as_json, const std::vector<InspectedKind>& others) {
  const auto other = std::find_if(others.begin(), others.end(),
                                  [&](const InspectedKind& kind) { return kind.is_one(path); });
  if (other != others.end())
    other->inspect(path, as_json);
  else if (profile::is_profile(path))
    inspect_profile(path, as_json);
  else
    inspect_model(path, as_json);
}

}  // namespace

void add_inspect_command(CLI::App& app, const std::vector<InspectedKind>& others) {
  CLI::App* command = app.add_subcommand(
      "inspect", "Show what a model file, a profile or a policy holds, without loading it");
  auto path = std::make_shared<std::string>();
  auto as_json = std::make_shared<bool>(false);
  add_option(*command, "file", *path, "FILE",
             "GGUF file, Hugging Face folder, profile, or policy document")
      ->required();
  command->add_flag("--json", *as_json, "print JSON");
  for (const auto& kind : others)
    if (kind.add_options) kind.add_options(*command);
  command->footer(
      "Examples:\n"
      "  kvatlas inspect SmolLM2-135M-Instruct.Q4_1.gguf\n"
      "  kvatlas inspect ./Llama-3.1-8B --json\n"
      "  kvatlas inspect p.h5\n"
      "  kvatlas inspect policy.json\n"
      "  kvatlas inspect policy.json --context 32768 --batch 8 --memory 24GiB --model M");
  command->callback([=] { inspect(*path, *as_json, others); });
}

}  // namespace kvatlas
