// SPDX-License-Identifier: Apache-2.0
#include "analyzer/tokenizer/piece_model.hpp"
#include "analyzer/tokenizer/protobuf_reader.hpp"
#include "analyzer/tokenizer/sentencepiece_normalizer.hpp"
#include "analyzer/tokenizer/tokenizer_files.hpp"
#include "base/error.hpp"
#include "base/unicode_text.hpp"

// tokenizer.model is a protobuf message that we read ourselves: the SentencePiece library takes
// damaged files for granted, and its protobuf library clashes with the one inside LibTorch. The
// field numbers are those of sentencepiece_model.proto. The tests compare with the library.
namespace kvatlas::model {

namespace {

constexpr std::uint64_t kUnigram = 1, kBpe = 2;

/// The part of a SentencePiece model that we use, with the defaults of its format.
struct SentencePieceFile {
  std::vector<std::string> texts;
  std::vector<float> scores;
  std::vector<PieceType> types;
  std::uint64_t kind = kUnigram;
  bool byte_fallback = false;
  std::string bos = "<s>", eos = "</s>";
  std::string_view replacements;
  bool add_dummy_prefix = true, remove_extra_whitespaces = true, escape_whitespaces = true;
};

void read_piece(SentencePieceFile& file, std::string_view bytes) {
  std::string text;
  float score = 0;
  std::uint64_t type = 1;
  for (ProtobufReader reader(bytes); reader.next();) {
    if (reader.field() == 1) text = reader.bytes();
    if (reader.field() == 2) score = reader.number();
    if (reader.field() == 3) type = reader.integer();
  }
  if (text.empty()) fail(ErrorCode::unreadable, "piece ", file.texts.size(), " is empty");
  if (type < 1 || type > 6) {
    fail(ErrorCode::unreadable, "piece ", quoted(text), " has the type ", type,
         ", expected 1 to 6");
  }
  file.texts.push_back(std::move(text));
  file.scores.push_back(score);
  file.types.push_back(static_cast<PieceType>(type));
}

void read_trainer(SentencePieceFile& file, std::string_view bytes) {
  for (ProtobufReader reader(bytes); reader.next();) {
    if (reader.field() == 3) file.kind = reader.integer();
    if (reader.field() == 24 && reader.boolean()) {
      fail(ErrorCode::unsupported, "treat_whitespace_as_suffix is not supported");
    }
    if (reader.field() == 35) file.byte_fallback = reader.boolean();
    if (reader.field() == 46) file.bos = reader.bytes();
    if (reader.field() == 47) file.eos = reader.bytes();
  }
  if (file.kind != kUnigram && file.kind != kBpe) {
    fail(ErrorCode::unsupported, "the SentencePiece model type ", file.kind,
         " is not supported (1, unigram, and 2, BPE, are)");
  }
}

void read_normalizer(SentencePieceFile& file, std::string_view bytes) {
  for (ProtobufReader reader(bytes); reader.next();) {
    if (reader.field() == 2) file.replacements = reader.bytes();
    if (reader.field() == 3) file.add_dummy_prefix = reader.boolean();
    if (reader.field() == 4) file.remove_extra_whitespaces = reader.boolean();
    if (reader.field() == 5) file.escape_whitespaces = reader.boolean();
  }
}

void refuse_denormalizer(std::string_view bytes) {
  for (ProtobufReader reader(bytes); reader.next();) {
    if (reader.field() == 2 && !reader.bytes().empty()) {
      fail(ErrorCode::unsupported, "a denormalizer (denormalizer_spec) is not supported");
    }
  }
}

SentencePieceFile read_file(std::string_view bytes) {
  SentencePieceFile file;
  for (ProtobufReader reader(bytes); reader.next();) {
    if (reader.field() == 1) read_piece(file, reader.bytes());
    if (reader.field() == 2) read_trainer(file, reader.bytes());
    if (reader.field() == 3) read_normalizer(file, reader.bytes());
    if (reader.field() == 5) refuse_denormalizer(reader.bytes());
  }
  if (file.texts.empty()) fail(ErrorCode::unreadable, "no pieces: not a SentencePiece model");
  return file;
}

std::int32_t unknown_id(const SentencePieceFile& file) {
  std::int32_t unknown = -1;
  for (std::size_t id = 0; id < file.types.size(); ++id) {
    if (file.types[id] != PieceType::unknown) continue;
    if (unknown >= 0) fail(ErrorCode::unreadable, "two pieces are of the type unknown");
    unknown = static_cast<std::int32_t>(id);
  }
  if (unknown < 0) fail(ErrorCode::unreadable, "no piece is of the type unknown");
  return unknown;
}

void require_distinct(const SentencePieceFile& file, const Vocabulary& vocabulary) {
  for (std::size_t id = 0; id < file.texts.size(); ++id) {
    if (vocabulary.find(file.texts[id]) != static_cast<std::int32_t>(id)) {
      fail(ErrorCode::unreadable, "piece ", quoted(file.texts[id]), " occurs twice");
    }
  }
}

}  // namespace

TokenizerParts parts_from_sentencepiece(std::string_view bytes, const TokenizerSettings& settings) {
  SentencePieceFile file = read_file(bytes);
  PieceTable table;
  table.vocabulary = std::make_shared<const Vocabulary>(file.texts);
  require_distinct(file, *table.vocabulary);
  table.scores.assign(file.scores.begin(), file.scores.end());
  table.types = file.types;
  table.unknown = unknown_id(file);
  if (file.byte_fallback) table.byte_ids = byte_tokens(*table.vocabulary);

  TokenizerParts parts;
  parts.vocabulary = table.vocabulary;
  for (std::int32_t id = 0; id < parts.vocabulary->size(); ++id) {
    if (table.type(id) != PieceType::control && id != table.unknown) continue;
    AddedToken token;
    token.id = id;
    token.text = parts.vocabulary->text(id);
    token.special = true;
    parts.added.push_back(std::move(token));
  }

  SentencePieceNormalizing rules;
  rules.replacements = CharsMap(file.replacements);
  rules.kept = LiteralSet(table.user_defined());
  rules.prefix_space = settings.add_prefix_space.value_or(file.add_dummy_prefix);
  rules.squeeze_spaces = file.remove_extra_whitespaces;
  rules.escape_spaces = file.escape_whitespaces;
  add_sentencepiece_decoder(parts.decoder, rules);
  if (rules.prefix_space && !settings.legacy.value_or(true)) {
    // Since transformers' "legacy": false the prefix goes before the text alone, not after each
    // special token.
    rules.prefix_space = false;
    parts.pretokenizer.add(
        cutting::metaspace(std::string(kSpaceSymbol), cutting::PrependScheme::first, false));
  }

  Fingerprint print;
  print.add("sentencepiece");
  print.add(*parts.vocabulary);
  for (const PieceType type : file.types) print.add(static_cast<std::int64_t>(type));
  for (const float score : file.scores) print.add(str(score));
  print.add(file.replacements);
  for (const bool flag : {rules.prefix_space, rules.squeeze_spaces, rules.escape_spaces,
                          file.byte_fallback, settings.legacy.value_or(true)}) {
    print.add(flag ? 1 : 0);
  }
  parts.fingerprint = print.text();

  parts.normalizer.add(sentencepiece_step(std::move(rules)));
  if (file.kind == kBpe) {
    parts.model = std::make_unique<PieceBpe>(std::move(table));
  } else {
    parts.model = std::make_unique<Unigram>(std::move(table), Unigram::Sums::in_float);
  }
  const auto control = [&](const std::string& text) -> std::optional<std::int32_t> {
    const auto id = parts.vocabulary->find(text);
    if (!id || file.types[*id] != PieceType::control) return std::nullopt;
    return id;
  };
  parts.bos = control(file.bos);
  if (parts.bos) parts.prefix.push_back(*parts.bos);
  if (const auto eos = control(file.eos)) parts.ends.push_back(*eos);
  return parts;
}

std::shared_ptr<const Tokenizer> Tokenizer::from_sentencepiece(std::string_view bytes) {
  TokenizerParts parts = parts_from_sentencepiece(bytes, {});
  add_turn_ends(parts);
  return std::make_shared<PipelineTokenizer>(std::move(parts));
}

}  // namespace kvatlas::model
