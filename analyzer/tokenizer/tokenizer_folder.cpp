// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include <nlohmann/json.hpp>

#include "analyzer/checkpoint/json_members.hpp"
#include "analyzer/tokenizer/tokenizer_files.hpp"
#include "base/error.hpp"
#include "base/json_text.hpp"
#include "base/mapped_file.hpp"

namespace kvatlas::model {

namespace {

using nlohmann::json;
namespace fs = std::filesystem;

bool is_there(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}

constexpr std::size_t kMostBytes = std::size_t{1} << 30;  // the largest real ones have 40 MB

/// Calls read(text) with the text of a file; errors name the file.
template <class Read>
auto read_file(const fs::path& path, Read read) {
  const MappedFile file = MappedFile::open(path);
  return in_context(quoted(path.string(), 400), [&] {
    const auto bytes = file.bytes();
    if (bytes.size() > kMostBytes)
      fail(ErrorCode::unreadable, "has ", bytes.size(), " bytes, a tokenizer's file at most ",
           kMostBytes);
    auto result = read(std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
    file.require_intact();
    return result;
  });
}

json read_json_file(const fs::path& path) {
  if (!is_there(path)) return json::object();
  return read_file(path, [](std::string_view text) {
    json value = parse_json(text);
    if (!value.is_object()) fail(ErrorCode::unreadable, "holds no JSON object");
    return value;
  });
}

/// The members that end in "_token" and are no switch. A token is written as its text or as
/// {"content": text, …}.
void add_special_tokens(std::map<std::string, std::string>& tokens, const json& config) {
  for (const auto& [name, value] : config.items()) {
    if (!name.ends_with("_token") || value.is_boolean()) continue;
    const auto text =
        value.is_object() ? string_member(value, "content") : string_member(config, name.c_str());
    if (text) tokens[name] = *text;
  }
}

/// A template is one text, or a list of named ones, of which "default" is meant.
std::optional<std::string> template_member(const json& config) {
  const json* value = find_member(config, "chat_template");
  if (!value || !value->is_array()) return string_member(config, "chat_template");
  for (const json& entry : *value) {
    if (string_member(entry, "name") == "default") return string_member(entry, "template");
  }
  return std::nullopt;
}

void add_end_ids(std::vector<std::int64_t>& ids, const json& config) {
  const json* value = find_member(config, "eos_token_id");
  if (!value) return;
  const json list = value->is_array() ? *value : json::array({*value});
  for (const json& id : list) ids.push_back(as_integer(id, "eos_token_id"));
}

}  // namespace

TokenizerSettings read_tokenizer_settings(const fs::path& folder) {
  TokenizerSettings settings;
  const fs::path config_path = folder / "tokenizer_config.json";
  const json config = read_json_file(config_path);
  in_context(quoted(config_path.string(), 400), [&] {
    add_special_tokens(settings.special_tokens, config);
    settings.add_bos = bool_member(config, "add_bos_token");
    settings.add_eos = bool_member(config, "add_eos_token");
    settings.legacy = bool_member(config, "legacy");
    settings.add_prefix_space = bool_member(config, "add_prefix_space");
    settings.chat_template = template_member(config);
  });
  // Older checkpoints say it in a file of its own.
  if (find_member(config, "added_tokens_decoder") == nullptr) {
    const fs::path path = folder / "special_tokens_map.json";
    const json older = read_json_file(path);
    in_context(quoted(path.string(), 400),
               [&] { add_special_tokens(settings.special_tokens, older); });
  }
  if (const fs::path path = folder / "chat_template.jinja"; is_there(path)) {
    settings.chat_template =
        read_file(path, [](std::string_view text) { return std::string(text); });
  }
  for (const char* name : {"generation_config.json", "config.json"}) {
    const json file = read_json_file(folder / name);
    in_context(quoted((folder / name).string(), 400), [&] { add_end_ids(settings.end_ids, file); });
  }
  return settings;
}

void apply_settings(TokenizerParts& parts, const TokenizerSettings& settings) {
  const Vocabulary& vocabulary = *parts.vocabulary;
  const auto special = [&](const char* role) -> std::optional<std::int32_t> {
    const auto token = settings.special_tokens.find(role);
    if (token == settings.special_tokens.end()) return std::nullopt;
    return vocabulary.find(token->second);
  };
  if (settings.special_tokens.contains("bos_token")) parts.bos = special("bos_token");
  const std::optional<std::int32_t> eos = special("eos_token");
  const auto add_end = [&](std::int64_t id) {
    if (id < 0 || id >= vocabulary.size()) return;  // the model may have more ids than tokens
    const auto end = static_cast<std::int32_t>(id);
    if (std::find(parts.ends.begin(), parts.ends.end(), end) == parts.ends.end()) {
      parts.ends.push_back(end);
    }
  };
  if (eos) add_end(*eos);
  for (const std::int64_t id : settings.end_ids) add_end(id);
  add_turn_ends(parts);

  // What is set explicitly overrules the post-processor.
  if (settings.add_bos && parts.bos) {
    std::erase(parts.prefix, *parts.bos);
    if (*settings.add_bos) parts.prefix.insert(parts.prefix.begin(), *parts.bos);
  }
  if (settings.add_eos && eos) {
    std::erase(parts.suffix, *eos);
    if (*settings.add_eos) parts.suffix.push_back(*eos);
  }
  if (settings.chat_template) parts.chat_template = settings.chat_template;
  parts.special_tokens = settings.special_tokens;
}

std::shared_ptr<const Tokenizer> Tokenizer::from_folder(const fs::path& folder) {
  const fs::path as_json = folder / "tokenizer.json";
  const fs::path as_model = folder / "tokenizer.model";
  const bool has_json = is_there(as_json);
  if (!has_json && !is_there(as_model)) return nullptr;
  const TokenizerSettings settings = read_tokenizer_settings(folder);
  TokenizerParts parts = read_file(has_json ? as_json : as_model, [&](std::string_view text) {
    return has_json ? parts_from_json(text) : parts_from_sentencepiece(text, settings);
  });
  apply_settings(parts, settings);
  return std::make_shared<PipelineTokenizer>(std::move(parts));
}

}  // namespace kvatlas::model
