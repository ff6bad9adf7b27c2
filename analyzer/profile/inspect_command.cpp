// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <limits>
#include <map>
#include <memory>
#include <optional>

#include <nlohmann/json.hpp>

#include "analyzer/checkpoint/hub_cache.hpp"
#include "analyzer/config/cache_card.hpp"
#include "analyzer/jinja/chat.hpp"
#include "analyzer/model/model_file.hpp"
#include "analyzer/profile/commands.hpp"
#include "analyzer/profile/inspect_profile.hpp"
#include "analyzer/profile/model_text.hpp"
#include "analyzer/profile/profile.hpp"
#include "base/bytes.hpp"
#include "base/error.hpp"
#include "base/json_text.hpp"
#include "base/options.hpp"
#include "base/plain_text.hpp"
#include "base/table.hpp"
#include "base/text_count.hpp"

namespace kvatlas {
namespace {

using json = nlohmann::ordered_json;

constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();

/// Sums of sizes that a file merely claims end at kMost.
std::int64_t bounded_sum(std::int64_t a, std::int64_t b) {
  std::int64_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? kMost : sum;
}

/// A number of bytes that may be larger than a file's claims should let it be.
std::int64_t whole_bytes(double bytes) {
  return bytes < 0x1p62 ? static_cast<std::int64_t>(std::llround(bytes)) : kMost;
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
  return join(layers, ", ", [&](const auto& of) {
    return str(
        of.first > 0 ? str(config.chunks ? "chunks of " : "", of.first, " tokens") : "all tokens",
        " in ", count_of(of.second, "layer", "layers"));
  });
}

/// "12 full of 2 x 256 keys and values, 36 state", layers of a kind together.
std::string layers_text(const model::CacheCard& cache) {
  std::vector<std::pair<std::string, int>> kinds;
  for (const auto& layer : cache.layers) {
    std::string kind = model::cached_kind_name(layer.kind);
    if (layer.tokens > 0) kind += str(" of ", layer.tokens, " tokens");
    if (layer.kind == model::CachedLayer::Kind::latent)
      kind += str(" of ", layer.key_dim, " numbers");
    else if (layer.kind == model::CachedLayer::Kind::state && layer.state_values > 0)
      kind += str(" of ", layer.state_values, " numbers");
    else if (layer.values_per_token() > 0)
      kind += str(", ", layer.kv_heads, " KV heads of ", layer.key_dim);
    const auto known =
        std::find_if(kinds.begin(), kinds.end(), [&](const auto& of) { return of.first == kind; });
    if (known == kinds.end())
      kinds.emplace_back(kind, 1);
    else
      ++known->second;
  }
  return str(cache.layers.size(), ": ",
             join(kinds, "; ", [](const auto& of) { return str(of.second, ' ', of.first); }));
}

/// Whether some layers hold something else than a key and a value of each KV head, as large as in
/// the other layers.
bool has_unlike_layers(const model::CacheCard& cache) {
  using Kind = model::CachedLayer::Kind;
  return std::any_of(cache.layers.begin(), cache.layers.end(), [&](const auto& layer) {
    return layer.kind == Kind::latent || layer.kind == Kind::state || layer.kind == Kind::shared ||
           layer.values_per_token() != cache.layers.front().values_per_token();
  });
}

json layers_json(const model::CacheCard& cache) {
  json layers = json::array();
  for (const auto& layer : cache.layers) {
    json of = {{"kind", model::cached_kind_name(layer.kind)}};
    if (layer.values_per_token() > 0) {
      of["kv_heads"] = layer.kv_heads;
      of["key_dim"] = layer.key_dim;
      of["value_dim"] = layer.value_dim;
    }
    if (layer.tokens > 0) of["tokens"] = layer.tokens;
    if (layer.state_values > 0) of["state_values"] = layer.state_values;
    layers.push_back(std::move(of));
  }
  return layers;
}

/// Whether a user's message can be written with the model's chat template, or why not.
std::string chat_text(const model::Tokenizer* tokenizer) {
  if (!tokenizer || !tokenizer->chat_template()) return "none";
  try {
    (void)model::Chat("auto", tokenizer).render({{"user", "What is a KV cache?"}});
    return "its own";
  } catch (const Error& error) {
    return str("one that cannot be used: ", error.what());
  }
}

/// The bytes of one sequence in a model's cache.
class SequenceBytes {
 public:
  SequenceBytes(const model::CacheCard& cache, std::string runtime, const CacheOfSequence& bytes_of)
      : cache_(cache), runtime_(std::move(runtime)), bytes_of_(bytes_of) {}

  std::vector<SequenceCache> at(std::int64_t tokens) const {
    return bytes_of_(cache_, runtime_, tokens);
  }
  /// At 16 bits a number, in no runtime.
  double plain(std::int64_t tokens) const { return bytes_of_(cache_, {}, tokens).front().bytes; }

 private:
  const model::CacheCard& cache_;
  std::string runtime_;
  const CacheOfSequence& bytes_of_;
};

json model_card(const model::ModelFile& model, const model::CacheCard& cache,
                const SequenceBytes& of_sequence) {
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
          {"total_layers", c.total_layers},
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
          {"cache_layers", layers_json(cache)},
          {"kv_cache_bytes_per_token", whole_bytes(of_sequence.plain(1))},
          {"kv_cache_bytes_at_context", whole_bytes(of_sequence.plain(c.context_length))},
          {"tokenizer_vocab_size", tokenizer ? json(tokenizer->vocab_size()) : json(nullptr)},
          {"chat", chat_text(tokenizer)},
          {"tokenizer_fingerprint", tokenizer ? json(tokenizer->fingerprint()) : json(nullptr)},
          {"fingerprint", model.fingerprint()}};
}

void line(const char* label, const std::string& value) {
  std::cout << "  " << label << std::string(18 - std::string(label).size(), ' ') << value << '\n';
}

/// "4 KiB a token at 16 bits, 2 GiB at full context".
std::string cache_text(const model::CacheCard& cache, const SequenceBytes& of_sequence) {
  const double a_token = of_sequence.plain(1);
  std::string text = bytes_str(whole_bytes(a_token)) + " a token at 16 bits";
  if (cache.context_length == 0) return text;
  const double full = of_sequence.plain(cache.context_length);
  text += ", " + bytes_str(whole_bytes(full)) + " at full context";
  if (full < a_token * static_cast<double>(cache.context_length))
    text += ", where windows hold their tokens alone";
  return text;
}

void print_card(const json& card, const model::Config& config, const model::CacheCard& cache,
                const SequenceBytes& of_sequence, const std::string& tokenizer_problem) {
  const auto whole = [&](const char* key) { return card.at(key).get<std::int64_t>(); };
  const auto text = [&](const char* key) {
    return printable(card.at(key).get<std::string>(), 200);
  };
  std::cout << (config.name.empty() ? "model" : printable(config.name)) << '\n';
  line("file", text("file"));
  line("format", text("format"));
  line("architecture", text("architecture"));
  line("layers", profile::layers_text(whole("layers"), config.layer_numbers) +
                     (config.layer_numbers.empty() ? "" : str(" of ", config.total_layers)));
  line("heads", str(whole("heads"), " query, ", whole("kv_heads"), " key/value, of ",
                    whole("head_dim"), " dimensions"));
  line("hidden size", str(whole("hidden_size"), ", feed-forward ", whole("intermediate_size")));
  if (const auto& experts = config.experts; experts.count > 0) {
    const auto layers = std::count(experts.in_layer.begin(), experts.in_layer.end(), 1);
    line("experts",
         str(experts.count, ", ", experts.active, " a token, in ",
             count_of(layers, "layer", "layers"), ", feed-forward ", experts.size,
             experts.shared_size > 0 ? str(", and a shared one, ", experts.shared_size) : ""));
  }
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
  line("KV cache", cache_text(cache, of_sequence));
  if (has_unlike_layers(cache)) line("layers' caches", layers_text(cache));
  const auto& tokens = card.at("tokenizer_vocab_size");
  line("tokenizer", !tokens.is_null() ? str(tokens.get<std::int64_t>(), " tokens")
                    : tokenizer_problem.empty()
                        ? "none"
                        : "none that can be used: " + printable(tokenizer_problem, 200));
  line("chat template", text("chat"));
  line("fingerprint", text("fingerprint"));
}

/// The card of a model that is known from its header alone.
json header_card(const model::CacheCard& cache, const SequenceBytes& of_sequence,
                 const std::string& why_not) {
  return {{"file", cache.file},
          {"format", cache.format},
          {"name", cache.name},
          {"architecture", cache.architecture},
          {"layers", cache.layers.size()},
          {"heads", cache.heads},
          {"hidden_size", cache.hidden_size},
          {"vocab_size", cache.vocab_size},
          {"context_length", cache.context_length},
          {"experts", cache.experts},
          {"active_experts", cache.active_experts},
          {"stored_bytes", cache.weight_bytes},
          {"cache_layers", layers_json(cache)},
          {"kv_cache_bytes_per_token", whole_bytes(of_sequence.plain(1))},
          {"kv_cache_bytes_at_context", whole_bytes(of_sequence.plain(cache.context_length))},
          {"notes", cache.notes},
          {"not_run", why_not}};
}

void print_header_card(const model::CacheCard& cache, const SequenceBytes& of_sequence,
                       const std::string& why_not) {
  std::cout << printable(cache.name.empty() ? "model" : cache.name, 200) << '\n';
  line("file", printable(cache.file, 200));
  line("format", cache.format);
  line("architecture", printable(cache.architecture, 200));
  line("layers", layers_text(cache));
  line("heads", count_of(cache.heads, "query head", "query heads"));
  line("hidden size", str(cache.hidden_size));
  if (cache.experts > 0)
    line("experts", str(cache.experts, ", ", cache.active_experts, " a token"));
  if (cache.vocab_size > 0) line("vocabulary", str(cache.vocab_size));
  line("context", cache.context_length > 0 ? str(cache.context_length, " tokens") : "not said");
  if (cache.weight_bytes > 0) line("stored", bytes_str(cache.weight_bytes));
  line("KV cache", cache_text(cache, of_sequence));
  line("kvatlas", printable(why_not, 400));
}

/// What fits, a row a format of the cache's numbers.
Table memory_table(const model::CacheCard& cache, const InspectOptions& o,
                   const SequenceBytes& of_sequence) {
  const double weights = o.weights.empty() ? static_cast<double>(cache.weight_bytes)
                                           : static_cast<double>(parse_bytes(o.weights));
  const double memory = o.memory.empty() ? 0 : static_cast<double>(parse_bytes(o.memory));
  const auto batch = static_cast<double>(o.batch);
  const std::int64_t length = o.context + o.new_tokens;
  Table table{str("Memory of ", count_of(o.batch, "sequence", "sequences"), " of ", length,
                  " tokens", o.runtime.empty() ? "" : " in " + o.runtime,
                  weights > 0 ? str(", weights of ", bytes_str(whole_bytes(weights)), " included")
                              : ", without weights (--weights adds them)"),
              {"cache", "a token", "a sequence", "in all"},
              {}};
  if (memory > 0)
    for (const char* column : {"batch that fits", "context that fits"})
      table.columns.emplace_back(column);
  const auto formats = of_sequence.at(length);
  for (std::size_t i = 0; i < formats.size(); ++i) {
    const double sequence = formats[i].bytes;
    Table::Row row = {
        formats[i].format, bytes_str(whole_bytes(of_sequence.plain(1) * formats[i].bits / 16)),
        bytes_str(whole_bytes(sequence)), bytes_str(whole_bytes(sequence * batch + weights))};
    if (memory > 0) {
      const double room = memory - weights;
      const auto fits_at = [&](std::int64_t tokens) {
        return of_sequence.at(tokens)[i].bytes * batch <= room;
      };
      row.push_back(room <= 0      ? "none"
                    : sequence > 0 ? str(whole_bytes(std::floor(room / sequence)))
                                   : "any");
      std::int64_t fits = 0, too_long = std::int64_t{1} << 27;
      if (room > 0 && fits_at(too_long)) fits = too_long;
      while (fits + 1 < too_long) {
        const std::int64_t middle = fits + (too_long - fits) / 2;
        (fits_at(middle) ? fits : too_long) = middle;
      }
      row.push_back(fits >= std::int64_t{1} << 27 ? "any" : str(fits));
    }
    table.rows.push_back(std::move(row));
  }
  return table;
}

json memory_json(const Table& table, const InspectOptions& o, const SequenceBytes& of_sequence) {
  json out = table_json(table);
  if (!o.runtime.empty()) out["runtime"] = o.runtime;
  out["formats"] = json::array();
  for (const SequenceCache& one : of_sequence.at(o.context + o.new_tokens)) {
    json layers = json::array();
    for (const auto& layer : one.layers)
      layers.push_back({{"tokens", count_json(layer.tokens)}, {"bytes", count_json(layer.bytes)}});
    out["formats"].push_back({{"format", one.format},
                              {"sequence_bytes", count_json(one.bytes)},
                              {"layers", std::move(layers)}});
  }
  return out;
}

/// The reason without the file's own name before it, and without the list of what is known.
std::string short_reason(std::string reason, const std::string& path) {
  if (const std::string name = quoted(path, 400) + ": "; reason.starts_with(name))
    reason.erase(0, name.size());
  return reason.substr(0, reason.find("; these are"));
}

/// Whether the weights are there at all; a configuration alone is a model's header.
bool is_header_alone(const std::filesystem::path& path) {
  if (path.filename().string().ends_with("config.json")) return true;
  std::error_code error;
  if (!std::filesystem::exists(path / "config.json", error)) return false;
  for (const auto& entry : std::filesystem::directory_iterator(path, error))
    for (const char* ending : {".safetensors", ".bin", ".pt", ".pth"})
      if (entry.path().string().ends_with(ending)) return false;
  return true;
}

void inspect_model(const std::string& given, const InspectOptions& o,
                   const CacheOfSequence& bytes_of) {
  const std::string path = model::found_model(given).string();
  std::error_code not_there;
  if (std::filesystem::exists(path, not_there) && !o.model.empty())
    fail(ErrorCode::usage, "--model is for a policy; ", quoted(path, 200), " is a model");
  std::shared_ptr<const model::ModelFile> model;
  std::string why_not;
  std::optional<model::CacheCard> cache;
  if (is_header_alone(path)) {
    cache = model::read_cache_card(path);
    why_not = "the weights are not here";
  } else {
    try {
      model = model::ModelFile::open(path);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::unsupported) throw;
      why_not = "cannot run it: " + short_reason(error.what(), path);
      try {
        cache = model::read_cache_card(path);
      } catch (const Error&) {
        throw error;
      }
    }
  }
  if (!cache) cache = model::read_cache_card(path);
  const SequenceBytes of_sequence(*cache, o.runtime, bytes_of);
  json card =
      model ? model_card(*model, *cache, of_sequence) : header_card(*cache, of_sequence, why_not);
  std::optional<Table> memory;
  if (o.context > 0) memory = memory_table(*cache, o, of_sequence);
  if (o.as_json) {
    if (memory) card["memory"] = memory_json(*memory, o, of_sequence);
    std::cout << json_text(card, 2) << '\n';
    return;
  }
  if (model)
    print_card(card, model->config(), *cache, of_sequence, model->tokenizer_problem());
  else
    print_header_card(*cache, of_sequence, why_not);
  if (memory) std::cout << '\n' << table_text(*memory);
  for (const auto& note : cache->notes) std::cerr << "kvatlas: note: " << note << '\n';
}

void inspect_kind(const std::string& path, const InspectOptions& o,
                  const std::vector<InspectedKind>& others, const CacheOfSequence& bytes_of) {
  const bool model_header =
      std::filesystem::path(path).filename().string().ends_with("config.json");
  const auto other = std::find_if(others.begin(), others.end(), [&](const InspectedKind& kind) {
    return !model_header && kind.is_one(path);
  });
  if (other != others.end()) {
    other->inspect(path, o);
  } else if (profile::is_profile(path)) {
    if (o.context > 0)
      fail(ErrorCode::usage, "memory is of a model or a policy; ", quoted(path, 200),
           " is a profile");
    inspect_profile(path, o.as_json);
  } else {
    inspect_model(path, o, bytes_of);
  }
}

void inspect(const std::string& path, const InspectOptions& o,
             const std::vector<InspectedKind>& others, const CacheOfSequence& bytes_of) {
  o.check();
  try {
    inspect_kind(path, o, others, bytes_of);
  } catch (const CutError& error) {
    fail(error.code(), error.what(), "; the file seems to be cut off: copy or download it again");
  }
}

}  // namespace

void InspectOptions::check() const {
  if (context == 0 && (new_tokens > 0 || batch > 1 || !memory.empty() || !model.empty() ||
                       !weights.empty() || !runtime.empty()))
    fail(ErrorCode::usage, "memory is of prompts of a length: give it with --context");
}

void add_inspect_command(CLI::App& app, const std::vector<InspectedKind>& others,
                         const CacheOfSequence& bytes_of) {
  CLI::App* command = app.add_subcommand(
      "inspect", "Show what a model, a profile or a policy holds, and the memory it takes");
  const auto path = std::make_shared<std::string>();
  const auto options = std::make_shared<InspectOptions>();
  InspectOptions& o = *options;
  add_option(
      *command, "file", *path, "FILE",
      "GGUF file, Hugging Face folder or config.json, org/name of its cache, profile, policy "
      "document, or policy as text, of the model that --model names")
      ->required();
  command->add_flag("--json", o.as_json, "print JSON");
  constexpr std::int64_t kMostTokens = std::int64_t{1} << 27;
  command->option_defaults()->group("Memory of a model, or of a policy document's policies");
  add_option(*command, "--context", o.context, "TOKENS",
             "prompt tokens for which the memory is computed")
      ->check(whole_range(1, kMostTokens));
  add_number(*command, "--new-tokens", o.new_tokens, "TOKENS", "tokens generated after the prompt",
             0, kMostTokens);
  add_number(*command, "--batch", o.batch, "N", "sequences at a time", 1, kMostTokens);
  add_option(
      *command, "--memory", o.memory, "SIZE",
      "memory for weights and cache, such as 24GiB: says the greatest batch and context in it");
  add_option(*command, "--weights", o.weights, "SIZE",
             "size of the weights, such as 13GiB, where it is not that of the files");
  add_option(*command, "-m,--model", o.model, "PATH",
             "for a policy: the model whose weights are counted, or that a policy as text is of");
  add_option(*command, "--as", o.runtime, "RUNTIME",
             "count the cache as this runtime lays it out, in its blocks and pools");
  command->option_defaults()->group("Options");
  command->footer(
      "Any architecture is described from its config.json or GGUF header, whether kvatlas runs it "
      "or not.\n"
      "\n"
      "Examples:\n"
      "  kvatlas inspect SmolLM2-135M-Instruct.Q4_1.gguf\n"
      "  kvatlas inspect config.json --context 131072 --batch 8 --memory 80GiB --weights 16GiB\n"
      "  kvatlas inspect ./Llama-3.1-8B --json\n"
      "  kvatlas inspect MODEL.gguf --context 32768 --as llama.cpp\n"
      "  kvatlas inspect p.h5\n"
      "  kvatlas inspect policy.json --context 32768 --batch 8 --memory 24GiB --model M\n"
      "  kvatlas inspect snapkv:budget=1024 --model M --context 32768 --new-tokens 512 --as vllm "
      "--memory 40GiB");
  command->callback([=] { inspect(*path, *options, others, bytes_of); });
}

}  // namespace kvatlas
