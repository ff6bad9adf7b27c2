// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include <nlohmann/json.hpp>

#include "analyzer/checkpoint/json_members.hpp"
#include "analyzer/tokenizer/bpe.hpp"
#include "analyzer/tokenizer/piece_model.hpp"
#include "analyzer/tokenizer/tokenizer_files.hpp"
#include "base/error.hpp"
#include "base/json_text.hpp"
#include "base/unicode_text.hpp"

namespace kvatlas::model {

namespace {

using nlohmann::json;

[[noreturn]] void unsupported(const char* part, const std::string& type) {
  fail(ErrorCode::unsupported, part, " ", quoted(type), " is not supported");
}

/// Calls visit(step) for the steps of a part, those of a Sequence one by one.
template <class Visit>
void for_each_step(const json& part, const char* list, Visit visit) {
  if (require_string(part, "type") != "Sequence") return visit(part);
  for (const json& step : array_member(part, list)) for_each_step(step, list, visit);
}

/// {"String": "x"} or {"Regex": "x+"}.
Regex pattern_of(const json& part) {
  const json* pattern = find_member(part, "pattern");
  if (!pattern) fail(ErrorCode::unreadable, "'pattern' is missing");
  if (const auto text = string_member(*pattern, "String")) return Regex::literal(*text);
  return Regex(require_string(*pattern, "Regex"));
}

/// A text that must be one character.
std::string character_of(const json& part, const char* name) {
  std::string text = require_string(part, name);
  if (text.empty() || read_utf8(text, 0).length != text.size()) {
    fail(ErrorCode::unreadable, "'", name, "' is ", quoted(text), ", expected one character");
  }
  return text;
}

// --- normalizer ---------------------------------------------------------------------------------

void add_normalizer(Normalizer& normalizer, const json& part) {
  using namespace normalizing;
  const std::string type = require_string(part, "type");
  if (type == "NFC") {
    normalizer.add(unicode_form(UnicodeForm::nfc));
  } else if (type == "NFD") {
    normalizer.add(unicode_form(UnicodeForm::nfd));
  } else if (type == "NFKC") {
    normalizer.add(unicode_form(UnicodeForm::nfkc));
  } else if (type == "NFKD") {
    normalizer.add(unicode_form(UnicodeForm::nfkd));
  } else if (type == "Lowercase") {
    normalizer.add(lowercase());
  } else if (type == "StripAccents") {
    normalizer.add(strip_accents());
  } else if (type == "Strip") {
    normalizer.add(strip_spaces(bool_member(part, "strip_left").value_or(true),
                                bool_member(part, "strip_right").value_or(true)));
  } else if (type == "Prepend") {
    normalizer.add(prepend(require_string(part, "prepend")));
  } else if (type == "Replace") {
    normalizer.add(normalizing::replace(pattern_of(part), require_string(part, "content")));
  } else if (type == "ByteLevel") {
    normalizer.add(normalizing::byte_level());
  } else {
    unsupported("normalizer", type);
  }
}

// --- pre-tokenizer ------------------------------------------------------------------------------

SplitBehavior behavior_of(const std::string& name) {
  if (name == "Removed") return SplitBehavior::removed;
  if (name == "Isolated") return SplitBehavior::isolated;
  if (name == "MergedWithPrevious") return SplitBehavior::merged_with_previous;
  if (name == "MergedWithNext") return SplitBehavior::merged_with_next;
  if (name == "Contiguous") return SplitBehavior::contiguous;
  unsupported("split behavior", name);
}

cutting::PrependScheme prepend_scheme_of(const json& part) {
  const auto scheme = string_member(part, "prepend_scheme");
  if (!scheme) {
    // Files from before prepend_scheme.
    return bool_member(part, "add_prefix_space").value_or(true) ? cutting::PrependScheme::always
                                                                : cutting::PrependScheme::never;
  }
  if (*scheme == "always") return cutting::PrependScheme::always;
  if (*scheme == "first") return cutting::PrependScheme::first;
  if (*scheme == "never") return cutting::PrependScheme::never;
  unsupported("prepend_scheme", *scheme);
}

void add_pretokenizer(PreTokenizer& pretokenizer, const json& part) {
  using namespace cutting;
  const std::string type = require_string(part, "type");
  if (type == "ByteLevel") {
    if (bool_member(part, "add_prefix_space").value_or(true)) pretokenizer.add(prefix_space());
    if (bool_member(part, "use_regex").value_or(true)) {
      pretokenizer.add(split(Regex(patterns::kGpt2), SplitBehavior::isolated));
    }
    pretokenizer.add(cutting::byte_level());
  } else if (type == "Split") {
    pretokenizer.add(split(pattern_of(part), behavior_of(require_string(part, "behavior")),
                           bool_member(part, "invert").value_or(false)));
  } else if (type == "Digits") {
    pretokenizer.add(split(is_number, bool_member(part, "individual_digits").value_or(false)
                                          ? SplitBehavior::isolated
                                          : SplitBehavior::contiguous));
  } else if (type == "Metaspace") {
    pretokenizer.add(cutting::metaspace(character_of(part, "replacement"), prepend_scheme_of(part),
                                        bool_member(part, "split").value_or(true)));
  } else if (type == "Whitespace") {
    pretokenizer.add(words_and_symbols());
  } else if (type == "WhitespaceSplit") {
    pretokenizer.add(split(is_space, SplitBehavior::removed));
  } else if (type == "Punctuation") {
    pretokenizer.add(split(is_separating_punctuation,
                           behavior_of(string_member(part, "behavior").value_or("Isolated"))));
  } else if (type == "CharDelimiterSplit") {
    const std::string delimiter = character_of(part, "delimiter");
    pretokenizer.add(split(read_utf8(delimiter, 0).code, SplitBehavior::removed));
  } else if (type == "BertPreTokenizer") {
    pretokenizer.add(split(is_space, SplitBehavior::removed));
    pretokenizer.add(split(is_separating_punctuation, SplitBehavior::isolated));
  } else {
    unsupported("pre_tokenizer", type);
  }
}

// --- decoder ------------------------------------------------------------------------------------

std::size_t count_of(const json& part, const char* name) {
  const std::int64_t count = integer_member(part, name).value_or(0);
  if (count < 0) fail(ErrorCode::unreadable, "'", name, "' is ", count, ", expected 0 or more");
  return static_cast<std::size_t>(count);
}

void add_decoder(TokenDecoder& decoder, const json& part) {
  using namespace decoding;
  const std::string type = require_string(part, "type");
  if (type == "ByteLevel") {
    decoder.add(decoding::byte_level());
  } else if (type == "ByteFallback") {
    decoder.add(byte_fallback());
  } else if (type == "Fuse") {
    decoder.add(fuse());
  } else if (type == "Metaspace") {
    decoder.add(decoding::metaspace(character_of(part, "replacement"),
                                    prepend_scheme_of(part) != cutting::PrependScheme::never));
  } else if (type == "Replace") {
    decoder.add(decoding::replace(pattern_of(part), require_string(part, "content")));
  } else if (type == "Strip") {
    decoder.add(
        strip(character_of(part, "content"), count_of(part, "start"), count_of(part, "stop")));
  } else {
    unsupported("decoder", type);
  }
}

// --- post-processor -----------------------------------------------------------------------------

std::int32_t checked_id(const json& value, const Vocabulary& vocabulary) {
  const std::int64_t id = as_integer(value, "id");
  if (id < 0 || id >= vocabulary.size()) {
    fail(ErrorCode::unreadable, "token id ", id, " is out of range: the vocabulary has ",
         vocabulary.size(), " tokens");
  }
  return static_cast<std::int32_t>(id);
}

/// "single" of a TemplateProcessing: special tokens, the text, special tokens.
void read_template(TokenizerParts& parts, const json& part) {
  const json* specials = find_member(part, "special_tokens");
  bool seen_text = false;
  for (const json& entry : array_member(part, "single")) {
    if (find_member(entry, "Sequence")) {
      if (seen_text) unsupported("post_processor template", "the text twice");
      seen_text = true;
      continue;
    }
    const json* token = find_member(entry, "SpecialToken");
    if (!token) fail(ErrorCode::unreadable, "'single' holds neither Sequence nor SpecialToken");
    const std::string name = require_string(*token, "id");
    const json* special = specials ? find_member(*specials, name.c_str()) : nullptr;
    if (!special) fail(ErrorCode::unreadable, "special token ", quoted(name), " is not described");
    for (const json& id : array_member(*special, "ids")) {
      (seen_text ? parts.suffix : parts.prefix).push_back(checked_id(id, *parts.vocabulary));
    }
  }
  if (!seen_text) fail(ErrorCode::unreadable, "'single' leaves the text out");
}

/// "cls" and "sep" of RobertaProcessing and BertProcessing: [token, id].
std::int32_t paired_id(const TokenizerParts& parts, const json& part, const char* name) {
  const json& pair = array_member(part, name);
  if (pair.size() != 2) fail(ErrorCode::unreadable, "'", name, "' is not a token and its id");
  return checked_id(pair[1], *parts.vocabulary);
}

void add_post_processor(TokenizerParts& parts, const json& part) {
  const std::string type = require_string(part, "type");
  if (type == "ByteLevel") return;  // it moves offsets alone
  if (type == "TemplateProcessing") {
    read_template(parts, part);
  } else if (type == "RobertaProcessing" || type == "BertProcessing") {
    parts.prefix.push_back(paired_id(parts, part, "cls"));
    parts.suffix.push_back(paired_id(parts, part, "sep"));
  } else {
    unsupported("post_processor", type);
  }
}

// --- vocabulary and model -----------------------------------------------------------------------

const json& required(const json& object, const char* name) {
  const json* value = find_member(object, name);
  if (!value) fail(ErrorCode::unreadable, "'", name, "' is missing");
  return *value;
}

/// The texts of {"token": id, …} (BPE) or of [["token", score], …] (Unigram).
std::vector<std::string> read_texts(const json& vocab) {
  std::vector<std::string> texts;
  if (vocab.is_object()) {
    for (const auto& [text, id] : vocab.items()) {
      put_token(texts, as_integer(id, text), text, vocab.size());
    }
  } else if (vocab.is_array()) {
    for (const json& entry : vocab) {
      if (!entry.is_array() || entry.size() != 2 || !entry[0].is_string()) {
        fail(ErrorCode::unreadable, "entry ", texts.size(), " is not a token and its score");
      }
      texts.push_back(entry[0].get<std::string>());
    }
  } else {
    fail(ErrorCode::unreadable, "'vocab' is of type ", vocab.type_name(),
         ", expected the tokens and their ids or scores");
  }
  return texts;
}

/// Adds the added tokens to the texts. The model's own id of a text counts more than the one
/// given.
std::vector<AddedToken> read_added(const json& list, std::vector<std::string>& texts) {
  std::unordered_map<std::string, std::int64_t> known;
  for (std::size_t id = 0; id < texts.size(); ++id) {
    known[texts[id]] = static_cast<std::int64_t>(id);
  }
  const std::size_t entries = texts.size() + list.size();
  std::vector<AddedToken> added;
  for (const json& entry : list) {
    AddedToken token;
    token.text = require_string(entry, "content");
    if (token.text.empty()) continue;
    const auto given = integer_member(entry, "id");
    if (!given) fail(ErrorCode::unreadable, "added token ", quoted(token.text), " has no id");
    const std::int64_t id = known.emplace(token.text, *given).first->second;
    put_token(texts, id, token.text, entries);
    token.id = static_cast<std::int32_t>(id);
    token.special = bool_member(entry, "special").value_or(false);
    token.normalized = bool_member(entry, "normalized").value_or(!token.special);
    token.single_word = bool_member(entry, "single_word").value_or(false);
    token.strip_left = bool_member(entry, "lstrip").value_or(false);
    token.strip_right = bool_member(entry, "rstrip").value_or(false);
    added.push_back(std::move(token));
  }
  return added;
}

/// A merge is "left right" or ["left", "right"].
Bpe::Merge read_merge(const json& merge, const Vocabulary& vocabulary) {
  if (merge.is_string()) {
    const auto& text = merge.get_ref<const std::string&>();
    const std::size_t space = text.find(' ');
    if (space == text.npos || text.find(' ', space + 1) != text.npos) {
      fail(ErrorCode::unreadable, "merge ", quoted(text), " is not two tokens and a space");
    }
    const std::string_view view = text;
    return {vocabulary.require(view.substr(0, space)), vocabulary.require(view.substr(space + 1))};
  }
  if (!merge.is_array() || merge.size() != 2 || !merge[0].is_string() || !merge[1].is_string()) {
    fail(ErrorCode::unreadable, "a merge is neither a text nor two tokens");
  }
  return {vocabulary.require(merge[0].get_ref<const std::string&>()),
          vocabulary.require(merge[1].get_ref<const std::string&>())};
}

std::unique_ptr<const TokenModel> make_bpe(const json& model,
                                           std::shared_ptr<const Vocabulary> vocabulary) {
  for (const char* name : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (!string_member(model, name).value_or("").empty()) unsupported("BPE option", name);
  }
  if (const json* dropout = find_member(model, "dropout"); dropout && *dropout != 0.0) {
    unsupported("BPE option", "dropout");
  }
  Bpe::Options options;
  options.byte_fallback = bool_member(model, "byte_fallback").value_or(false);
  options.ignore_merges = bool_member(model, "ignore_merges").value_or(false);
  options.fuse_unknown = bool_member(model, "fuse_unk").value_or(false);
  if (const auto unknown = string_member(model, "unk_token")) {
    options.unknown = vocabulary->require(*unknown);
  }
  std::vector<Bpe::Merge> merges;
  const json& list = array_member(model, "merges");
  merges.reserve(list.size());
  in_context("merges", [&] {
    for (const json& merge : list) merges.push_back(read_merge(merge, *vocabulary));
  });
  return std::make_unique<Bpe>(std::move(vocabulary), merges, options);
}

std::unique_ptr<const TokenModel> make_unigram(const json& model,
                                               std::shared_ptr<const Vocabulary> vocabulary) {
  PieceTable table;
  const json& vocab = required(model, "vocab");
  const auto size = static_cast<std::size_t>(vocabulary->size());
  // Added tokens are no pieces: they are found before the model runs.
  table.types.assign(size, PieceType::control);
  table.scores.assign(size, 0.0);
  if (!vocab.is_array()) fail(ErrorCode::unreadable, "'vocab' of a Unigram model is not a list");
  for (std::size_t id = 0; id < vocab.size(); ++id) {
    const json& score = vocab[id][1];
    if (!score.is_number()) {
      fail(ErrorCode::unreadable, "the score of token ", id, " is not a number");
    }
    table.scores[id] = score.get<double>();
    table.types[id] = PieceType::normal;
  }
  if (const json* unknown = find_member(model, "unk_id")) {
    table.unknown = checked_id(*unknown, *vocabulary);
  }
  if (bool_member(model, "byte_fallback").value_or(false))
    table.byte_ids = byte_tokens(*vocabulary);
  table.vocabulary = std::move(vocabulary);
  return std::make_unique<Unigram>(std::move(table), Unigram::Sums::in_double);
}

std::string model_type(const json& model) {
  if (const auto type = string_member(model, "type")) return *type;
  if (find_member(model, "merges")) return "BPE";  // files from before the type was written
  fail(ErrorCode::unreadable, "'type' is missing");
}

/// Reads one part of the file, if it is there; errors name it.
template <class Read>
void read_part(const json& root, const char* name, const char* list, Read read) {
  if (const json* part = find_member(root, name)) {
    in_context(name, [&] { for_each_step(*part, list, read); });
  }
}

}  // namespace

TokenizerParts parts_from_json(std::string_view text) {
  const json root = parse_json(text);
  TokenizerParts parts;
  const json& model = required(root, "model");
  const std::string type = in_context("model", [&] { return model_type(model); });
  if (type != "BPE" && type != "Unigram") unsupported("model", type);

  auto texts = in_context("model", [&] {
    return in_context("vocab", [&] { return read_texts(required(model, "vocab")); });
  });
  // The model sees its own tokens alone, not the added ones.
  const auto own = std::make_shared<const Vocabulary>(texts);
  in_context("added_tokens",
             [&] { parts.added = read_added(array_member(root, "added_tokens"), texts); });
  parts.vocabulary = std::make_shared<const Vocabulary>(std::move(texts));
  in_context("model", [&] {
    parts.model = type == "BPE" ? make_bpe(model, own) : make_unigram(model, parts.vocabulary);
  });

  read_part(root, "normalizer", "normalizers",
            [&](const json& part) { add_normalizer(parts.normalizer, part); });
  read_part(root, "pre_tokenizer", "pretokenizers",
            [&](const json& part) { add_pretokenizer(parts.pretokenizer, part); });
  read_part(root, "post_processor", "processors",
            [&](const json& part) { add_post_processor(parts, part); });
  read_part(root, "decoder", "decoders",
            [&](const json& part) { add_decoder(parts.decoder, part); });

  Fingerprint print;
  print.add(*parts.vocabulary);
  for (const char* name : {"normalizer", "pre_tokenizer", "added_tokens"}) {
    const json* part = find_member(root, name);
    print.add(part ? part->dump() : "");
  }
  for (const auto& [name, value] : model.items()) {
    if (name == "vocab" && value.is_object()) continue;  // ids and texts are in already
    print.add(name);
    print.add(value.dump());
  }
  parts.fingerprint = print.text();
  return parts;
}

std::shared_ptr<const Tokenizer> Tokenizer::from_json(std::string_view text) {
  TokenizerParts parts = parts_from_json(text);
  add_turn_ends(parts);
  return std::make_shared<PipelineTokenizer>(std::move(parts));
}

}  // namespace kvatlas::model
