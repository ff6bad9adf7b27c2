// SPDX-License-Identifier: Apache-2.0
// Tokenizers as they lie in a model's folder, in a GGUF file and in SentencePiece's own file.
#include <algorithm>
#include <functional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "analyzer/checkpoint/gguf.hpp"
#include "analyzer/tokenizer/tokenizer.hpp"
#include "base/error.hpp"
#include "tests/support/model_bytes.hpp"

namespace kvatlas::model {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing_support::bytes_of;
using testing_support::error_of;
using testing_support::gguf_string;
using testing_support::GgufBytes;
using testing_support::TemporaryFolder;

// --- a folder -----------------------------------------------------------------------------------

/// Ids: a 0, b 1, ab 2, <s> 3, </s> 4, <|im_end|> 5.
const char* const kJson = R"({
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]},
    "added_tokens": [{"id": 3, "content": "<s>", "special": true},
                     {"id": 4, "content": "</s>", "special": true},
                     {"id": 5, "content": "<|im_end|>", "special": true}],
    "post_processor": {"type": "BertProcessing", "cls": ["<s>", 3], "sep": ["</s>", 4]}})";

class TokenizerFolder : public testing::Test {
 protected:
  void SetUp() override { folder_.write("tokenizer.json", kJson); }

  std::shared_ptr<const Tokenizer> read(const json& config) const {
    folder_.write("tokenizer_config.json", config.dump());
    return Tokenizer::from_folder(folder_.path());
  }

  const TemporaryFolder folder_;
};

TEST_F(TokenizerFolder, WithoutSettingsTheFileAloneDecides) {
  const auto tokenizer = Tokenizer::from_folder(folder_.path());
  EXPECT_THAT(tokenizer->encode("ab"), ElementsAre(3, 2, 4));
  EXPECT_EQ(tokenizer->bos_id(), std::nullopt);
  EXPECT_THAT(tokenizer->end_ids(), ElementsAre(5)) << "it ends a turn by its name";
  EXPECT_EQ(tokenizer->chat_template(), std::nullopt);
  const TemporaryFolder empty;
  EXPECT_EQ(Tokenizer::from_folder(empty.path()), nullptr);
}

TEST_F(TokenizerFolder, SettingsOverruleThePostProcessor) {
  const json tokens = {{"bos_token", {{"content", "<s>"}}}, {"eos_token", "</s>"}};
  json config = tokens;
  EXPECT_THAT(read(config)->encode("ab"), ElementsAre(3, 2, 4));
  EXPECT_EQ(read(config)->bos_id(), 3);
  EXPECT_THAT(read(config)->end_ids(), ElementsAre(4, 5));
  config.update({{"add_bos_token", false}, {"add_eos_token", false}});
  EXPECT_THAT(read(config)->encode("ab"), ElementsAre(2));
  config.update({{"add_bos_token", true}, {"add_eos_token", true}});
  EXPECT_THAT(read(config)->encode("ab"), ElementsAre(3, 2, 4)) << "once, not twice";
  json unknown = tokens;
  unknown["bos_token"] = "<none>";
  unknown["add_bos_token"] = true;
  EXPECT_THAT(read(unknown)->encode("ab"), ElementsAre(3, 2, 4));
}

TEST_F(TokenizerFolder, EndsComeFromAllFiles) {
  folder_.write("generation_config.json", R"({"eos_token_id": [5, 4, 99, -1]})");
  folder_.write("config.json", R"({"eos_token_id": 1})");
  EXPECT_THAT(read({{"eos_token", "</s>"}})->end_ids(), ElementsAre(4, 5, 1));
}

TEST_F(TokenizerFolder, TemplatesAreOneTextANamedOneOrAFile) {
  EXPECT_EQ(read({{"chat_template", "one"}})->chat_template(), "one");
  const json named = json::parse(R"([{"name": "tool_use", "template": "other"},
                                     {"name": "default", "template": "named"}])");
  EXPECT_EQ(read({{"chat_template", named}})->chat_template(), "named");
  EXPECT_EQ(read({{"chat_template", {named.front()}}})->chat_template(), std::nullopt);
  folder_.write("chat_template.jinja", "a file");
  EXPECT_EQ(read({{"chat_template", "one"}})->chat_template(), "a file");
}

TEST_F(TokenizerFolder, OlderCheckpointsNameSpecialTokensInAFileOfTheirOwn) {
  using Tokens = std::map<std::string, std::string>;
  const json config = {{"bos_token", "<s>"}, {"pad_token", nullptr}, {"add_bos_token", false}};
  EXPECT_EQ(read(config)->special_tokens(), (Tokens{{"bos_token", "<s>"}}));
  folder_.write("special_tokens_map.json",
                R"({"bos_token": {"content": "</s>"}, "eos_token": "<|im_end|>"})");
  EXPECT_EQ(read(config)->special_tokens(),
            (Tokens{{"bos_token", "</s>"}, {"eos_token", "<|im_end|>"}}));
  EXPECT_EQ(read(config)->bos_id(), 4);
  json newer = config;
  newer["added_tokens_decoder"] = json::object();
  EXPECT_EQ(read(newer)->special_tokens(), (Tokens{{"bos_token", "<s>"}}));
}

TEST_F(TokenizerFolder, DamagedSettingsAreNamed) {
  const auto complaint = [&](const char* name, const std::string& text) {
    folder_.write(name, text);
    std::string error = error_of([&] { Tokenizer::from_folder(folder_.path()); });
    std::filesystem::remove(folder_.path() / name);
    EXPECT_THAT(error, HasSubstr(name));
    return error;
  };
  EXPECT_THAT(complaint("tokenizer_config.json", "[]"), HasSubstr("holds no JSON object"));
  EXPECT_THAT(complaint("tokenizer_config.json", "{"), HasSubstr("JSON"));
  EXPECT_THAT(complaint("tokenizer_config.json", R"({"add_bos_token": 1})"),
              HasSubstr("'add_bos_token' is of type number"));
  EXPECT_THAT(complaint("generation_config.json", R"({"eos_token_id": ["a"]})"),
              HasSubstr("'eos_token_id' is of type string"));
}

// --- parts of tokenizer.json that few files have ------------------------------------------------

TEST(TokenizerJson, WordsAndPunctuation) {
  const auto cut_by = [](const char* pretokenizer) {
    json file = json::parse(
        R"({"model": {"type": "BPE", "vocab": {"a": 0, "b": 1, ".": 2, " ": 3}, "merges": []}})");
    file["pre_tokenizer"] = json::parse(pretokenizer);
    return Tokenizer::from_json(file.dump())->encode("a .b");
  };
  EXPECT_THAT(cut_by(R"({"type": "BertPreTokenizer"})"), ElementsAre(0, 2, 1));
  EXPECT_THAT(cut_by(R"({"type": "WhitespaceSplit"})"), ElementsAre(0, 2, 1));
  EXPECT_THAT(cut_by(R"({"type": "Punctuation"})"), ElementsAre(0, 3, 2, 1));
  EXPECT_THAT(cut_by(R"({"type": "Punctuation", "behavior": "Removed"})"), ElementsAre(0, 3, 1));
}

TEST(TokenizerJson, WhatIsNotKnownIsNamed) {
  const auto complaint = [](const char* member, const char* value) {
    json file = json::parse(kJson);
    file[json::json_pointer(member)] = json::parse(value);
    return error_of([&] { Tokenizer::from_json(file.dump()); });
  };
  EXPECT_THAT(complaint("/normalizer", R"({"type": "Nmt"})"), HasSubstr("normalizer 'Nmt'"));
  EXPECT_THAT(complaint("/pre_tokenizer", R"({"type": "Digits2"})"), HasSubstr("'Digits2'"));
  EXPECT_THAT(complaint("/pre_tokenizer", R"({"type": "Punctuation", "behavior": "Kept"})"),
              HasSubstr("split behavior 'Kept'"));
  EXPECT_THAT(complaint("/pre_tokenizer", R"({"type": "Metaspace", "replacement": "_",
                                              "prepend_scheme": "last"})"),
              HasSubstr("prepend_scheme 'last'"));
  EXPECT_THAT(complaint("/decoder", R"({"type": "CTC"})"), HasSubstr("decoder 'CTC'"));
  EXPECT_THAT(complaint("/post_processor", R"({"type": "Pairs"})"), HasSubstr("'Pairs'"));
  EXPECT_THAT(complaint("/model/dropout", "0.5"), HasSubstr("dropout"));
  EXPECT_THAT(complaint("/model", R"({"type": "Unigram", "vocab": [["a"]]})"),
              HasSubstr("entry 0 is not a token and its score"));
}

// --- GGUF ---------------------------------------------------------------------------------------

enum : std::int32_t { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4 };

struct Token {
  std::string text;
  float score;
  std::int32_t type;
};

/// The keys that every tokenizer of a GGUF file has.
GgufBytes gguf_of(const char* kind, const std::vector<Token>& tokens) {
  std::string texts, scores, types;
  for (const Token& token : tokens) {
    texts += gguf_string(token.text);
    scores += bytes_of(token.score);
    types += bytes_of(token.type);
  }
  const auto array = [&](std::uint32_t type, const std::string& values) {
    return bytes_of(type) + bytes_of<std::uint64_t>(tokens.size()) + values;
  };
  GgufBytes file;
  file.text("tokenizer.ggml.model", kind);
  file.key("tokenizer.ggml.tokens", testing_support::kGgufArray,
           array(testing_support::kGgufString, texts));
  file.key("tokenizer.ggml.scores", testing_support::kGgufArray,
           array(testing_support::kGgufF32, scores));
  file.key("tokenizer.ggml.token_type", testing_support::kGgufArray,
           array(testing_support::kGgufI32, types));
  return file;
}

GgufBytes pieces(std::int32_t type_of_last = kUserDefined) {
  return gguf_of("llama", {{"<unk>", 0, kUnknown},
                           {"<s>", 0, kControl},
                           {"</s>", 0, kControl},
                           {"▁", -3, kNormal},
                           {"a", -4, kNormal},
                           {"b", -5, kNormal},
                           {"▁a", -1, kNormal},
                           {"[X]", 0, type_of_last}});
}

std::shared_ptr<const Tokenizer> read(const GgufBytes& written) {
  const std::string bytes = written.build();
  return Tokenizer::from_gguf(GgufFile::parse(std::as_bytes(std::span(bytes))));
}

std::string complaint_about(const GgufBytes& written) {
  return error_of([&] { read(written); });
}

const std::string kTrue = "\1", kFalse = std::string(1, '\0');

TEST(TokenizerGguf, PiecesWithScores) {
  auto file = pieces();
  file.number("tokenizer.ggml.bos_token_id", 1u).number("tokenizer.ggml.eos_token_id", 2u);
  const auto plain = read(file);
  EXPECT_THAT(plain->encode("ab"), ElementsAre(1, 6, 5)) << "a BOS and a space by default";
  EXPECT_EQ(plain->decode(plain->encode("ab"), true), "ab");
  EXPECT_THAT(plain->encode("a[X]</s>"), ElementsAre(1, 6, 7, 2));
  EXPECT_EQ(plain->bos_id(), 1);
  EXPECT_THAT(plain->end_ids(), ElementsAre(2));
  EXPECT_TRUE(plain->is_special(2));
  EXPECT_FALSE(plain->is_special(7));

  file.key("tokenizer.ggml.add_bos_token", testing_support::kGgufBool, kFalse);
  file.key("tokenizer.ggml.add_eos_token", testing_support::kGgufBool, kTrue);
  file.key("tokenizer.ggml.add_space_prefix", testing_support::kGgufBool, kFalse);
  file.key("tokenizer.ggml.remove_extra_whitespaces", testing_support::kGgufBool, kTrue);
  file.number("tokenizer.ggml.eot_token_id", 7u).text("tokenizer.chat_template", "turns");
  const auto set = read(file);
  EXPECT_THAT(set->encode("a  a"), ElementsAre(4, 6, 2));
  EXPECT_THAT(plain->encode("a  a"), ElementsAre(1, 6, 3, 6));
  EXPECT_THAT(set->end_ids(), ElementsAre(2, 7));
  EXPECT_EQ(set->chat_template(), "turns");
  EXPECT_THAT(set->special_tokens(), ElementsAre(std::pair("bos_token", set->token_text(1)),
                                                 std::pair("eos_token", set->token_text(2))));
  EXPECT_NE(set->fingerprint(), plain->fingerprint());
}

TEST(TokenizerGguf, ByteLevel) {
  const auto file_of = [](const char* merges, const char* cut) {
    auto file = gguf_of("gpt2", {{"a", 0, kNormal}, {"b", 0, kNormal}, {"ab", 0, kNormal}});
    if (cut) file.text("tokenizer.ggml.pre", cut);
    file.key("tokenizer.ggml.merges", testing_support::kGgufArray,
             bytes_of<std::uint32_t>(testing_support::kGgufString) + bytes_of<std::uint64_t>(1) +
                 gguf_string(merges));
    return file;
  };
  EXPECT_THAT(read(file_of("a b", "gpt-2"))->encode("abb"), ElementsAre(2, 1));
  EXPECT_THAT(complaint_about(file_of("a b", nullptr)), HasSubstr("tokenizer.ggml.pre is missing"));
  EXPECT_THAT(complaint_about(file_of("a b", "no-such")), HasSubstr("'no-such' is not supported"));
  EXPECT_THAT(complaint_about(file_of("ab", "gpt-2")), HasSubstr("not two tokens and a space"));
  auto spaced = file_of("a b", "gpt-2");
  spaced.key("tokenizer.ggml.add_space_prefix", testing_support::kGgufBool, kTrue);
  EXPECT_THAT(complaint_about(spaced), HasSubstr("add_space_prefix"));
}

TEST(TokenizerGguf, WhatDoesNotFitIsNamed) {
  EXPECT_EQ(read(GgufBytes()), nullptr);
  EXPECT_EQ(read(GgufBytes().text("tokenizer.ggml.model", "none")), nullptr);
  EXPECT_THAT(complaint_about(GgufBytes().text("tokenizer.ggml.model", "bert")),
              HasSubstr("'bert' is not supported"));
  EXPECT_THAT(complaint_about(pieces(9)), HasSubstr("token_type of '[X]' is 9"));
  EXPECT_THAT(complaint_about(pieces().number("tokenizer.ggml.bos_token_id", 8u)),
              HasSubstr("tokenizer.ggml.bos_token_id is 8, but there are 8 tokens"));
  const auto short_of = [](const char* key, const char* kind, std::uint32_t type,
                           const std::string& value) {
    GgufBytes file;
    file.text("tokenizer.ggml.model", kind);
    file.key("tokenizer.ggml.tokens", testing_support::kGgufArray,
             bytes_of<std::uint32_t>(testing_support::kGgufString) + bytes_of<std::uint64_t>(2) +
                 gguf_string("a") + gguf_string("b"));
    file.key(key, testing_support::kGgufArray, bytes_of(type) + bytes_of<std::uint64_t>(1) + value);
    return complaint_about(file);
  };
  EXPECT_THAT(short_of("tokenizer.ggml.scores", "llama", testing_support::kGgufF32, bytes_of(0.F)),
              HasSubstr("scores has 1 entries, expected one for each of the 2 tokens"));
  EXPECT_THAT(
      short_of("tokenizer.ggml.token_type", "llama", testing_support::kGgufI32, bytes_of(kNormal)),
      HasSubstr("token_type has 1 entries, expected one for each of the 2 tokens"));
}

// --- SentencePiece's own file -------------------------------------------------------------------

/// A field of a protobuf message: wire type 2, bytes.
std::string field(int number, const std::string& bytes) {
  return std::string{static_cast<char>(number << 3 | 2), static_cast<char>(bytes.size())} + bytes;
}

std::string varint_field(int number, char value) { return {static_cast<char>(number << 3), value}; }

std::string piece(const std::string& text, char type) {
  return field(1, field(1, text) + varint_field(3, type));
}

TEST(TokenizerSentencePiece, DamagedFilesAreNamed) {
  const auto complaint = [](const std::string& bytes) {
    return error_of([&] { Tokenizer::from_sentencepiece(bytes); });
  };
  const std::string whole = piece("<unk>", 2) + piece("a", 1) + field(2, varint_field(3, 2));
  EXPECT_EQ(complaint(whole), "");
  EXPECT_THAT(complaint(whole + piece("a", 1)), HasSubstr("piece 'a' occurs twice"));
  EXPECT_THAT(complaint(whole + piece("b", 7)), HasSubstr("piece 'b' has the type 7"));
  EXPECT_THAT(complaint(whole + piece("b", 2)), HasSubstr("two pieces are of the type unknown"));
  EXPECT_THAT(complaint(whole + field(2, varint_field(3, 4))), HasSubstr("model type 4"));
  EXPECT_THAT(complaint(whole + field(5, field(2, "x"))), HasSubstr("denormalizer"));
  EXPECT_THAT(complaint(whole + field(2, std::string("\xC0\x01\x01", 3))),
              HasSubstr("treat_whitespace_as_suffix"));
  EXPECT_THAT(complaint(whole + field(3, field(2, "xyz"))), HasSubstr("precompiled_charsmap"));
  EXPECT_THAT(complaint(whole + "\x0A\x7F"), HasSubstr("127 bytes announced, 0 left"));
  EXPECT_THAT(complaint(whole + "\x0B"), HasSubstr("field 1 has the wire type 3"));
  EXPECT_THAT(complaint(whole + varint_field(1, 1)), HasSubstr("field 1 is not bytes"));
  EXPECT_THAT(complaint(whole + std::string(11, '\xFF')), HasSubstr("more than 10 bytes"));
  EXPECT_EQ(complaint(whole + "\x59" + std::string(8, 'x')), "")
      << "unknown fixed64 is passed over";
}

}  // namespace
}  // namespace kvatlas::model
