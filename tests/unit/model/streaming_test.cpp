// SPDX-License-Identifier: Apache-2.0
// Text that comes token by token: characters cut anywhere come out whole.
#include <random>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "analyzer/tokenizer/byte_alphabet.hpp"
#include "analyzer/tokenizer/tokenizer.hpp"
#include "base/error.hpp"
#include "tests/support/tokenizer_checks.hpp"

namespace kvatlas::model {
namespace {

using nlohmann::json;
using Ids = std::vector<std::int64_t>;
using TokenizerPtr = std::shared_ptr<const Tokenizer>;

/// A tokenizer.json with these tokens; "<end>", the last id, is a control token.
TokenizerPtr tokenizer_of(const std::vector<std::string>& tokens, const json& decoder) {
  json file = {{"decoder", decoder}, {"model", {{"type", "BPE"}, {"merges", json::array()}}}};
  auto& vocab = file["model"]["vocab"] = json::object();
  for (std::size_t id = 0; id < tokens.size(); ++id) vocab[tokens[id]] = id;
  file["added_tokens"] = {{{"id", tokens.size()}, {"content", "<end>"}, {"special", true}}};
  return Tokenizer::from_json(file.dump());
}

/// Each byte is a token, so characters of two to four bytes are cut everywhere.
TokenizerPtr byte_tokenizer() {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) {
    tokens.emplace_back(ByteAlphabet::get().character(static_cast<unsigned char>(byte)));
  }
  return tokenizer_of(tokens, {{"type", "ByteLevel"}});
}

/// Llama 2's decoder: bytes, a space symbol and pieces of text; one space goes at the start.
TokenizerPtr fallback_tokenizer() {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) {
    constexpr const char* kDigits = "0123456789ABCDEF";
    tokens.push_back(std::string("<0x") + kDigits[byte / 16] + kDigits[byte % 16] + ">");
  }
  for (const char* text : {"▁", "▁▁", "a", "▁b", "é", "你好", "😀"}) tokens.emplace_back(text);
  const json replace = {{"type", "Replace"}, {"pattern", {{"String", "▁"}}}, {"content", " "}};
  const json strip = {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}};
  return tokenizer_of(
      tokens, {{"type", "Sequence"},
               {"decoders", {replace, {{"type", "ByteFallback"}}, {{"type", "Fuse"}}, strip}}});
}

/// The ids of a text's bytes, which both tokenizers have as their first 256.
Ids bytes_of(std::string_view text) {
  Ids ids;
  for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
  return ids;
}

/// What each push gives, then finish().
std::vector<std::string> parts_of(const TokenizerPtr& tokenizer, const Ids& ids) {
  StreamingDecoder decoder(tokenizer);
  std::vector<std::string> parts;
  for (const auto id : ids) parts.push_back(decoder.push(id));
  parts.push_back(decoder.finish());
  return parts;
}

TEST(Streaming, CharactersComeOutWhole) {
  const std::vector<std::string> expected = {"a", "", "é", "", "", "你", "", "", "", "😀", ""};
  EXPECT_EQ(parts_of(byte_tokenizer(), bytes_of("aé你😀")), expected);
}

TEST(Streaming, WhatStaysIncompleteIsReplacedAtTheEnd) {
  const std::string cut = "x\xF0\x9F\x98";
  EXPECT_EQ(parts_of(byte_tokenizer(), bytes_of(cut)),
            (std::vector<std::string>{"x", "", "", "", "\uFFFD"}));
  // What the next byte shows to be no character does not wait for the end.
  EXPECT_EQ(parts_of(byte_tokenizer(), bytes_of("\xF0\x9F\x41\xFF")),
            (std::vector<std::string>{"", "",
                                      "\uFFFD"
                                      "A",
                                      "\uFFFD", ""}));
}

TEST(Streaming, ADecoderBeginsAnewAfterItsEnd) {
  const auto tokenizer = fallback_tokenizer();
  StreamingDecoder decoder(tokenizer);
  for (int round = 0; round < 3; ++round) {
    std::string text;
    for (const std::int64_t id :
         {*tokenizer->id_of("▁b"), *tokenizer->id_of("▁b"), std::int64_t{0xC3}}) {
      text += decoder.push(id);
    }
    EXPECT_EQ(text + decoder.finish(), "b b\uFFFD");
  }
}

TEST(Streaming, ControlTokensAreLeftOutOrWritten) {
  const auto tokenizer = byte_tokenizer();
  const Ids ids = {0xC3, 256, 0xA9};
  EXPECT_EQ(parts_of(tokenizer, ids), (std::vector<std::string>{"", "", "é", ""}));
  StreamingDecoder decoder(tokenizer, false);
  std::string text;
  for (const auto id : ids) text += decoder.push(id);
  EXPECT_EQ(text, "\uFFFD<end>\uFFFD");
}

/// Random tokens, half of them bytes of real characters so that some are whole.
Ids random_ids(std::mt19937& random, std::int64_t size) {
  const char* const texts[] = {"é", "你", "😀", " ", "a", "\u2581", "\uFFFD"};
  Ids ids;
  for (int k = 0; k < 40; ++k) {
    if (random() % 2 == 0) {
      ids.push_back(static_cast<std::int64_t>(random() % static_cast<std::uint32_t>(size)));
      continue;
    }
    Ids bytes = bytes_of(texts[random() % std::size(texts)]);
    if (random() % 4 == 0) bytes.pop_back();
    ids.insert(ids.end(), bytes.begin(), bytes.end());
  }
  return ids;
}

TEST(StreamingProperty, PartsAreWholeAndAddUpToTheText) {
  std::mt19937 random(7);
  for (const auto& tokenizer : {byte_tokenizer(), fallback_tokenizer()}) {
    for (int round = 0; round < 2000; ++round) {
      const Ids ids = random_ids(random, tokenizer->vocab_size());
      testing_support::expect_streaming(tokenizer, ids, round % 2 == 0);
      if (HasFailure()) FAIL() << json(ids).dump();
    }
  }
}

TEST(StreamingProperty, ManyBytesThatAreNoText) {
  const auto tokenizer = byte_tokenizer();
  for (const int byte : {0x80, 0xC3, 0xE4, 0xF0, 0xFF}) {
    testing_support::expect_streaming(tokenizer, Ids(300, byte));
  }
}

TEST(Streaming, IdsOutOfRangeAreNamed) {
  StreamingDecoder decoder(byte_tokenizer());
  for (const std::int64_t id : {std::int64_t{-1}, std::int64_t{257}, std::int64_t{1} << 40}) {
    try {
      decoder.push(id);
      FAIL() << id;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::unreadable);
      EXPECT_NE(std::string(error.what()).find(std::to_string(id)), std::string::npos);
    }
  }
  EXPECT_EQ(decoder.push('a'), "a");
}

}  // namespace
}  // namespace kvatlas::model
