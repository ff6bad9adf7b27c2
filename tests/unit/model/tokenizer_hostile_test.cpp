// SPDX-License-Identifier: Apache-2.0
// Tokenizer files that lie, and texts that are no texts: a clear error or a plain answer, soon.
#include <cstring>
#include <filesystem>
#include <functional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "analyzer/tokenizer/regex.hpp"
#include "analyzer/tokenizer/sentencepiece_normalizer.hpp"
#include "analyzer/tokenizer/tokenizer.hpp"
#include "base/error.hpp"
#include "tests/support/model_bytes.hpp"
#include "tests/support/tokenizer_checks.hpp"

namespace kvatlas::model::tokenizer_hostile_tests {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using Ids = std::vector<std::int64_t>;

std::string repeated(const std::string& text, int times) {
  std::string out;
  while (times-- > 0) out += text;
  return out;
}

/// Runs what must fail, with this code and these words in the message.
void expect_error(const std::function<void()>& run, ErrorCode code, const std::string& words) {
  SCOPED_TRACE(words);
  try {
    run();
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code);
    EXPECT_THAT(error.what(), HasSubstr(words));
    EXPECT_LT(std::string(error.what()).size(), 1000u);
  }
}

void expect_unreadable(const std::string& file, const std::string& words) {
  expect_error([&] { Tokenizer::from_json(file); }, ErrorCode::unreadable, words);
}

json bpe_file() {
  return json::parse(R"({"model":{"type":"BPE","vocab":{"a":0,"b":1,"ab":2},"merges":["a b"]}})");
}

/// The file with the value at a path replaced.
std::string changed(const char* path, const json& value) {
  json file = bpe_file();
  file[json::json_pointer(path)] = value;
  return file.dump();
}

TEST(HostileTokenizer, Ids) {
  for (const json& id : {json(std::int64_t{1} << 40), json(1'000'000), json(-1)}) {
    expect_unreadable(changed("/model/vocab/b", id), "token 'b' has id " + id.dump());
  }
  expect_unreadable(changed("/model/vocab/b", ~std::uint64_t{0}), "more than any sensible value");
  expect_unreadable(changed("/model/vocab/b", 1.5), "'b' is of type number");
  expect_unreadable(changed("/model/vocab/b", 0), "'a' and 'b' share the id 0");
  const auto added = [](const json& id) { return json{{{"id", id}, {"content", "<x>"}}}; };
  expect_unreadable(changed("/added_tokens", added(1 << 30)), "token '<x>' has id 1073741824");
  expect_unreadable(changed("/added_tokens", added(1)), "share the id 1");
  expect_unreadable(changed("/added_tokens", added("one")), "'id' is of type string");
}

TEST(HostileTokenizer, MissingPieces) {
  expect_unreadable("{}", "'model' is missing");
  expect_unreadable(R"({"model":{"type":"BPE"}})", "'vocab' is missing");
  expect_unreadable(changed("/model/merges", {"a c"}), "token 'c' is not in the vocabulary");
  expect_unreadable(changed("/model/merges", {"b a"}), "merge 0 makes 'ba'");
  expect_unreadable(changed("/model/merges", {"ab"}), "'ab' is not two tokens and a space");
  expect_unreadable(changed("/model/merges", {"a b c"}), "is not two tokens and a space");
  expect_unreadable(changed("/model/merges", {{"a", "b", "c"}}), "neither a text nor two tokens");
  expect_unreadable(changed("/model/unk_token", "<unk>"), "'<unk>' is not in the vocabulary");
  expect_unreadable(changed("/post_processor", json::parse(R"({"type":"TemplateProcessing",
      "single":[{"SpecialToken":{"id":"<s>"}},{"Sequence":{}}],"special_tokens":{}})")),
                    "'<s>' is not described");
  expect_unreadable(changed("/post_processor", json::parse(R"({"type":"BertProcessing",
      "cls":["a",99],"sep":["b",1]})")),
                    "token id 99 is out of range");
}

TEST(HostileTokenizer, WrongTypes) {
  expect_unreadable("[]", "where an object with 'model' was expected");
  expect_unreadable("\"\xFF\"", "not valid JSON");
  expect_unreadable(changed("/model", "x"), "found a JSON string");
  expect_unreadable(changed("/model/vocab", 3), "'vocab' is of type number");
  expect_unreadable(changed("/model/merges", "a b"), "'merges' is of type string");
  expect_unreadable(changed("/added_tokens", json::object()), "'added_tokens' is of type object");
  expect_unreadable(changed("/normalizer", json::array()), "normalizer");
  expect_unreadable(changed("/decoder", {{"type", 1}}), "'type' is of type number");
  expect_unreadable(changed("/pre_tokenizer", {{"type", "Metaspace"}, {"replacement", "__"}}),
                    "expected one character");
  expect_unreadable(R"({"model":{"type":"Unigram","vocab":[["a","b"]]}})",
                    "the score of token 0 is not a number");
  expect_unreadable(R"({"model":{"type":"Unigram","vocab":[["a",1]],"unk_id":7}})",
                    "token id 7 is out of range");
  expect_unreadable(R"({"model":{"type":"Unigram","vocab":[["a",1e999]]}})", "");
  expect_error([] { Tokenizer::from_json(changed("/model/type", "WordPiece")); },
               ErrorCode::unsupported, "model 'WordPiece' is not supported");
}

TEST(HostileTokenizer, DeepNesting) {
  const std::string deep = repeated("[", 100'000);
  expect_unreadable(deep, "nested deeper than");
  std::string file = R"({"type":"Lowercase"})";
  for (int k = 0; k < 100; ++k) file = R"({"type":"Sequence","normalizers":[)" + file + "]}";
  expect_unreadable("{\"normalizer\":" + file + "}", "nested deeper than");
}

TEST(HostileTokenizer, MergesThatGoInCirclesEnd) {
  const auto tokenizer = Tokenizer::from_json(
      R"({"model":{"vocab":{"a":0,"b":1,"ab":2,"ba":3,"aba":4,"abab":5},
          "merges":["a b","b a","ab a","a ba","a b","ab ab","aba b"]}})");
  EXPECT_EQ(tokenizer->encode("abab"), Ids{5});
  const std::string text = repeated("aab", 20'000);
  std::string decoded = tokenizer->decode(tokenizer->encode(text));
  std::erase(decoded, ' ');  // without a decoder tokens are joined with spaces
  EXPECT_EQ(decoded, text);
}

TEST(HostileTokenizer, EnormousStrings) {
  const std::string huge = repeated("a", 5'000'000);
  json file = bpe_file();
  file["model"]["vocab"][huge] = 3;
  const auto tokenizer = Tokenizer::from_json(file.dump());
  EXPECT_EQ(tokenizer->decode(Ids{3}).size(), huge.size());
  EXPECT_EQ(tokenizer->encode(huge).size(), huge.size());
  const std::string unigram = R"({"model":{"type":"Unigram","vocab":[[")" + huge + R"(",1]]}})";
  expect_error([&] { Tokenizer::from_json(unigram); }, ErrorCode::unsupported,
               "has 5000000 bytes; at most 4096");
}

TEST(HostileTokenizer, EnormousFiles) {
  const testing_support::TemporaryFolder folder;
  const auto path = folder.write("tokenizer.json", "{}");
  std::filesystem::resize_file(path, (std::uintmax_t{1} << 30) + 1);
  expect_error([&] { Tokenizer::from_folder(folder.path()); }, ErrorCode::unreadable,
               "has 1073741825 bytes, a tokenizer's file at most 1073741824");
}

TEST(HostileTokenizer, CharactersReplacedByMegabytes) {
  // A double array of one entry: 'a' leads to a leaf whose replacement begins at byte 0.
  std::vector<std::uint32_t> units(99, 0);
  units['a'] = 'a' | 1 << 8 | ('a' ^ 98) << 10;
  const auto trie_bytes = static_cast<std::uint32_t>(units.size() * sizeof units[0]);
  std::string bytes(sizeof trie_bytes + trie_bytes, '\0');
  std::memcpy(bytes.data(), &trie_bytes, sizeof trie_bytes);
  std::memcpy(bytes.data() + sizeof trie_bytes, units.data(), trie_bytes);
  bytes += repeated("b", 400'000) + '\0';
  SentencePieceNormalizing rules;
  rules.replacements = CharsMap(bytes);
  const auto step = sentencepiece_step(rules);
  EXPECT_GT(step("aa").size(), 800'000u);
  expect_error([&] { step(repeated("a", 1000)); }, ErrorCode::resource,
               "normalizer makes a text longer than");
}

TEST(HostileTokenizer, TextThatGrows) {
  const json tenfold = {
      {"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", "aaaaaaaaaa"}};
  const json bytes = {{"type", "ByteLevel"}, {"use_regex", false}};
  const auto with_steps = [](const char* part, const char* list, const json& step) {
    return Tokenizer::from_json(
        changed(part, {{"type", "Sequence"}, {list, json::array_t(50, step)}}));
  };
  for (const auto& tokenizer : {with_steps("/normalizer", "normalizers", tenfold),
                                with_steps("/normalizer", "normalizers", bytes),
                                with_steps("/pre_tokenizer", "pretokenizers", bytes)}) {
    expect_error([&] { tokenizer->encode("a b"); }, ErrorCode::resource,
                 "makes a text longer than");
  }
  const auto tokenizer = with_steps("/decoder", "decoders", tenfold);
  expect_error(
      [&] {
        tokenizer->decode(Ids{0, 1});
      },
      ErrorCode::resource, "makes a text longer than");
}

TEST(HostileTokenizer, TextThatIsNotUtf8) {
  const auto tokenizer = Tokenizer::from_json(changed("/model/vocab/\uFFFD", 3));
  const std::pair<std::string, Ids> texts[] = {{"a\xFF"
                                                "b",
                                                {0, 3, 1}},
                                               {"\x80\x80", {3, 3}},
                                               {"\xF0\x9F\x98"
                                                "ab",
                                                {3, 2}},
                                               {"\xC0\xAF", {3, 3}},
                                               {"\xED\xA0\x80", {3, 3, 3}},
                                               {"\xF5\x80", {3, 3}},
                                               {std::string("\0a", 2), {0}},
                                               {"a\xE4\xBD", {0, 3}},
                                               {"", {}}};
  for (const auto& [text, ids] : texts) EXPECT_EQ(tokenizer->encode(text), ids) << json(ids).dump();
}

TEST(HostileTokenizer, IdsOutOfRange) {
  const auto tokenizer = Tokenizer::from_json(bpe_file().dump());
  for (const std::int64_t id : {std::int64_t{-1}, std::int64_t{3}, std::int64_t{1} << 33}) {
    const auto named = "token id " + std::to_string(id) + " is out of range";
    expect_error([&] { tokenizer->decode(Ids{0, id}); }, ErrorCode::unreadable, named);
    expect_error([&] { tokenizer->token_text(id); }, ErrorCode::unreadable, named);
  }
}

TEST(HostilePattern, BacktrackingIsStopped) {
  const std::string text = repeated("a", 3000) + "!";
  for (const char* pattern :
       {"(a+)+$", "(a|aa)+$", "(a|a?)+$", "(?:a*)*(?:a*)*(?:a*)*[bc]", "([a-z]+)*[0-9]"}) {
    expect_error([&] { Regex(pattern).for_each(text, [](std::size_t, std::size_t) {}); },
                 ErrorCode::resource, "takes too long on a text of 3001 bytes");
  }
}

TEST(HostilePattern, WhatPcre2ReadsDifferentlyIsRefused) {
  for (const char* pattern :
       {"(*ACCEPT)",   "(?m:.)",   "(?s).",   "(?R)", "(?1)", "(?C1)a",  "(?|a|b)",
        "(?#[)a",      "(?P<n>a)", "\\Qa\\E", "\\Ka", "\\C",  "a{1,2}+", "[a&&b]",
        "[[:alpha:]]", "[\\W]",    "(?",      "(",    "a**",  "[b-a]",   "(?<=a+)b"}) {
    expect_error([&] { Regex{pattern}; }, ErrorCode::unsupported, "pattern '");
  }
  expect_error([] { Regex(repeated("(", 10'000)); }, ErrorCode::unsupported, "nested");
  expect_error([] { Regex("(?:(?:a{1,999}){1,999}){1,999}"); }, ErrorCode::unsupported, "large");
  expect_error([] { Regex(repeated("a", 100'000)); }, ErrorCode::unsupported, "100000 bytes");
}

}  // namespace
}  // namespace kvatlas::model::tokenizer_hostile_tests
