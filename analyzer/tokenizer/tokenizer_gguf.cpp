// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "analyzer/checkpoint/gguf.hpp"
#include "analyzer/tokenizer/bpe.hpp"
#include "analyzer/tokenizer/piece_model.hpp"
#include "analyzer/tokenizer/pipeline_tokenizer.hpp"
#include "analyzer/tokenizer/sentencepiece_normalizer.hpp"
#include "base/error.hpp"

namespace kvatlas::model {

namespace {

using Strings = std::vector<std::string>;
using Integers = std::vector<std::int64_t>;

/// How the names of tokenizer.ggml.pre cut text.
struct PreKind {
  std::vector<const char*> names;
  std::vector<const char*> patterns;  // each cuts what the one before left
  bool ignore_merges = false;
  bool add_bos = false;  // where the file does not say
};

const std::vector<PreKind>& pre_kinds() {
  static const char* const kTekken =
      R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|)"
      R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|)"
      R"(\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
  static const char* const kGpt4o =
      R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
      R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
      R"(\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
  static const char* const kDeepseek3 =
      R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|)"
      R"( ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
  static const std::vector<PreKind> kinds = {
      {{"gpt-2", "phi-2", "mpt", "olmo", "jais", "trillion"}, {patterns::kGpt2}},
      {{"llama3", "llama-v3", "llama-bpe", "falcon3", "pixtral", "lfm2"},
       {patterns::kLlama3},
       true,
       true},
      {{"dbrx", "smaug-bpe", "chatglm-bpe", "glm4"}, {patterns::kLlama3}},
      {{"qwen2", "stablelm2", "deepseek-r1-qwen", "megrez"}, {patterns::kQwen2}},
      {{"smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b"},
       {patterns::kDigit, patterns::kGpt2}},
      {{"tekken"}, {kTekken}, true, true},
      {{"gpt-4o", "llama4"}, {kGpt4o}},
      {{"deepseek-v3"}, {R"(\p{N}{1,3})", R"([一-龥぀-ゟ゠-ヿ]+)", kDeepseek3}},
      {{"deepseek-coder"},
       {R"([\r\n])", R"(\s?\p{L}+)", R"(\s?\p{P}+)", R"([一-龥ࠀ-一가-퟿]+)",
        patterns::kDigit}},
  };
  return kinds;
}

const PreKind& pre_kind_named(std::string_view name) {
  for (const PreKind& kind : pre_kinds()) {
    if (std::find(kind.names.begin(), kind.names.end(), name) != kind.names.end()) return kind;
  }
  fail(ErrorCode::unsupported, "tokenizer.ggml.pre ", quoted(name),
       " is not supported: how it cuts text is not known");
}

PieceType piece_type(std::int64_t value, std::string_view token) {
  if (value < 1 || value > 6) {
    fail(ErrorCode::unreadable, "tokenizer.ggml.token_type of ", quoted(token), " is ", value,
         ", expected 1 to 6");
  }
  return static_cast<PieceType>(value);
}

std::vector<PieceType> read_types(const GgufFile& file, const Strings& tokens) {
  const auto values = file.get<Integers>("tokenizer.ggml.token_type");
  if (!values) return std::vector<PieceType>(tokens.size(), PieceType::normal);
  if (values->size() != tokens.size()) {
    fail(ErrorCode::unreadable, "tokenizer.ggml.token_type has ", values->size(),
         " entries, expected one for each of the ", tokens.size(), " tokens");
  }
  std::vector<PieceType> types;
  types.reserve(tokens.size());
  for (std::size_t k = 0; k < tokens.size(); ++k) {
    types.push_back(piece_type((*values)[k], tokens[k]));
  }
  return types;
}

/// Control and user-defined tokens are found in the text as they are written.
std::vector<AddedToken> added_tokens(const Vocabulary& vocabulary,
                                     const std::vector<PieceType>& types) {
  std::vector<AddedToken> added;
  for (std::int32_t id = 0; id < vocabulary.size(); ++id) {
    const PieceType type = types[id];
    const bool special = type == PieceType::control || type == PieceType::unknown;
    if (!special && type != PieceType::user_defined) continue;
    AddedToken token;
    token.id = id;
    token.text = vocabulary.text(id);
    token.special = special;
    added.push_back(std::move(token));
  }
  return added;
}

std::optional<std::int32_t> token_id(const GgufFile& file, const char* key,
                                     const Vocabulary& vocabulary) {
  const auto id = file.get<std::int64_t>(key);
  if (!id) return std::nullopt;
  if (*id < 0 || *id >= vocabulary.size()) {
    fail(ErrorCode::unreadable, key, " is ", *id, ", but there are ", vocabulary.size(), " tokens");
  }
  return static_cast<std::int32_t>(*id);
}

Bpe::Merge read_merge(const std::string& text, const Vocabulary& vocabulary) {
  const std::size_t space = text.find(' ', 1);
  if (text.empty() || space == text.npos) {
    fail(ErrorCode::unreadable, "merge ", quoted(text), " is not two tokens and a space");
  }
  const std::string_view view = text;
  return {vocabulary.require(view.substr(0, space)), vocabulary.require(view.substr(space + 1))};
}

/// The kind gpt2: byte-level BPE. Returns whether a BOS is added where the file does not say.
bool read_byte_level(TokenizerParts& parts, const GgufFile& file, Fingerprint& print) {
  const auto pre = file.get<std::string>("tokenizer.ggml.pre");
  if (!pre) {
    fail(ErrorCode::unsupported,
         "tokenizer.ggml.pre is missing, so how the text is cut is not known: convert the model "
         "anew with a converter that writes it");
  }
  const PreKind& kind = pre_kind_named(*pre);
  for (const char* pattern : kind.patterns) {
    parts.pretokenizer.add(cutting::split(Regex(pattern), SplitBehavior::isolated));
    print.add(pattern);
  }
  if (file.get<bool>("tokenizer.ggml.add_space_prefix").value_or(false)) {
    fail(ErrorCode::unsupported,
         "tokenizer.ggml.add_space_prefix with tokenizer.ggml.model 'gpt2' is not supported");
  }
  parts.pretokenizer.add(cutting::byte_level());
  parts.decoder.add(decoding::byte_level());

  std::vector<Bpe::Merge> merges;
  in_context("tokenizer.ggml.merges", [&] {
    for (const std::string& text : file.require<Strings>("tokenizer.ggml.merges")) {
      merges.push_back(read_merge(text, *parts.vocabulary));
      print.add(text);
    }
  });
  Bpe::Options options;
  options.ignore_merges = kind.ignore_merges;
  parts.model = std::make_unique<Bpe>(parts.vocabulary, merges, options);
  return kind.add_bos;
}

/// The kind llama: SentencePiece's BPE with scores.
void read_pieces(TokenizerParts& parts, const GgufFile& file, std::vector<PieceType> types,
                 Fingerprint& print) {
  const auto scores = file.require<std::vector<double>>("tokenizer.ggml.scores");
  if (scores.size() != types.size()) {
    fail(ErrorCode::unreadable, "tokenizer.ggml.scores has ", scores.size(),
         " entries, expected one for each of the ", types.size(), " tokens");
  }
  PieceTable table;
  table.vocabulary = parts.vocabulary;
  table.scores = scores;
  table.types = std::move(types);
  table.byte_ids = byte_tokens(*parts.vocabulary);
  table.unknown = token_id(file, "tokenizer.ggml.unknown_token_id", *parts.vocabulary).value_or(-1);
  for (const double score : table.scores) print.add(str(score));

  SentencePieceNormalizing rules;
  rules.prefix_space = file.get<bool>("tokenizer.ggml.add_space_prefix").value_or(true);
  rules.squeeze_spaces = file.get<bool>("tokenizer.ggml.remove_extra_whitespaces").value_or(false);
  print.add(rules.prefix_space ? 1 : 0);
  print.add(rules.squeeze_spaces ? 1 : 0);
  add_sentencepiece_decoder(parts.decoder, rules);
  parts.normalizer.add(sentencepiece_step(std::move(rules)));
  parts.model = std::make_unique<PieceBpe>(std::move(table));
}

void read_special_ids(TokenizerParts& parts, const GgufFile& file, bool bos_by_default) {
  parts.bos = token_id(file, "tokenizer.ggml.bos_token_id", *parts.vocabulary);
  const auto eos = token_id(file, "tokenizer.ggml.eos_token_id", *parts.vocabulary);
  if (parts.bos && file.get<bool>("tokenizer.ggml.add_bos_token").value_or(bos_by_default)) {
    parts.prefix.push_back(*parts.bos);
  }
  if (eos && file.get<bool>("tokenizer.ggml.add_eos_token").value_or(false)) {
    parts.suffix.push_back(*eos);
  }
  for (const char* key : {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                          "tokenizer.ggml.eom_token_id"}) {
    const auto id = token_id(file, key, *parts.vocabulary);
    if (id && std::find(parts.ends.begin(), parts.ends.end(), *id) == parts.ends.end()) {
      parts.ends.push_back(*id);
    }
  }
  add_turn_ends(parts);
  constexpr std::pair<const char*, const char*> kRoles[] = {
      {"bos_token", "tokenizer.ggml.bos_token_id"}, {"eos_token", "tokenizer.ggml.eos_token_id"}};
  for (const auto& [role, key] : kRoles)
    if (const auto id = token_id(file, key, *parts.vocabulary))
      parts.special_tokens[role] = parts.vocabulary->text(*id);
}

}  // namespace

std::shared_ptr<const Tokenizer> Tokenizer::from_gguf(const GgufFile& file) {
  const auto kind = file.get<std::string>("tokenizer.ggml.model");
  if (!kind || *kind == "none") return nullptr;
  if (*kind != "gpt2" && *kind != "llama") {
    fail(ErrorCode::unsupported, "tokenizer.ggml.model ", quoted(*kind),
         " is not supported (gpt2 and llama are)");
  }
  TokenizerParts parts;
  Fingerprint print;
  const auto tokens = file.require<Strings>("tokenizer.ggml.tokens");
  auto types = read_types(file, tokens);
  parts.vocabulary = std::make_shared<const Vocabulary>(tokens);
  parts.added = added_tokens(*parts.vocabulary, types);
  print.add(*kind);
  print.add(*parts.vocabulary);
  for (const PieceType type : types) print.add(static_cast<std::int64_t>(type));

  bool bos_by_default = true;
  if (*kind == "gpt2") {
    bos_by_default = read_byte_level(parts, file, print);
  } else {
    read_pieces(parts, file, std::move(types), print);
  }
  read_special_ids(parts, file, bos_by_default);
  parts.chat_template = file.get<std::string>("tokenizer.chat_template");
  parts.fingerprint = print.text();
  return std::make_shared<PipelineTokenizer>(std::move(parts));
}

}  // namespace kvatlas::model
