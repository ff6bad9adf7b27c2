// SPDX-License-Identifier: Apache-2.0
// Ids, decoded text and pieces that other software gives (golden/tokenizers.json).
#include <fstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "analyzer/checkpoint/gguf.hpp"
#include "analyzer/jinja/chat.hpp"
#include "analyzer/tokenizer/pretokenizer.hpp"
#include "analyzer/tokenizer/tokenizer.hpp"
#include "tests/support/golden.hpp"
#include "tests/support/tokenizer_checks.hpp"

namespace kvatlas::model {
namespace {

using nlohmann::json;
using testing_support::expect_streaming;
using Ids = std::vector<std::int64_t>;

constexpr Tokenizer::EncodeOptions kBare{.add_special = false, .parse_special = true};

const json& golden() {
  static const json data =
      json::parse(std::ifstream(testing_support::golden_path("tokenizers.json")));
  return data;
}

const std::shared_ptr<const Tokenizer>& smollm2() {
  static const auto tokenizer = Tokenizer::from_gguf(GgufFile::open(testing_support::demo_model()));
  return tokenizer;
}

std::shared_ptr<const Tokenizer> mistral_v3() {
  std::ifstream file(testing_support::fetched_path("mistral-v3-tokenizer.model"), std::ios::binary);
  return Tokenizer::from_sentencepiece(std::string(std::istreambuf_iterator<char>(file), {}));
}

TEST(TokenizerGolden, SmolLm2EncodesAsTransformersDoes) {
  const auto& strings = golden().at("strings");
  ASSERT_EQ(strings.size(), 23u);
  for (std::size_t k = 0; k < strings.size(); ++k) {
    const auto text = strings[k].get<std::string>();
    const Ids ids = smollm2()->encode(text, kBare);
    EXPECT_EQ(ids, golden().at("smollm2")[k].get<Ids>()) << text;
    EXPECT_EQ(smollm2()->encode(text), ids) << "its files ask for no BOS";
    EXPECT_EQ(smollm2()->decode(ids), golden().at("smollm2_decoded")[k].get<std::string>());
    expect_streaming(smollm2(), ids);
  }
}

TEST(TokenizerGolden, SmolLm2Card) {
  EXPECT_EQ(smollm2()->vocab_size(), 49152);
  EXPECT_EQ(smollm2()->bos_id(), 1);
  EXPECT_EQ(smollm2()->end_ids(), Ids{2});
  EXPECT_EQ(smollm2()->id_of("<|im_end|>"), 2);
  EXPECT_EQ(smollm2()->token_text(2), "<|im_end|>");
  EXPECT_EQ(smollm2()->fingerprint().size(), 16u);
}

TEST(TokenizerGolden, MistralV3EncodesAsSentencePieceDoes) {
  const auto tokenizer = mistral_v3();
  const auto& strings = golden().at("strings");
  for (std::size_t k = 0; k < strings.size(); ++k) {
    const auto text = strings[k].get<std::string>();
    const Ids ids = tokenizer->encode(text, {.add_special = false, .parse_special = false});
    EXPECT_EQ(ids, golden().at("mistral_v3")[k].get<Ids>()) << text;
    EXPECT_EQ(tokenizer->decode(ids), text);
    expect_streaming(tokenizer, ids);
  }
}

TEST(TokenizerGolden, MistralV3SpecialTokens) {
  const auto tokenizer = mistral_v3();
  const Ids ids = tokenizer->encode("[INST]hi[/INST]");
  ASSERT_EQ(ids.size(), 4u);
  EXPECT_EQ(ids[0], tokenizer->bos_id());
  EXPECT_EQ(ids[1], tokenizer->id_of("[INST]"));
  EXPECT_EQ(tokenizer->token_text(ids[2]), "▁hi");
  EXPECT_EQ(ids[3], tokenizer->id_of("[/INST]"));
  EXPECT_EQ(tokenizer->end_ids(), Ids{2});
  EXPECT_EQ(tokenizer->decode(ids, true), "hi");
}

TEST(TokenizerGolden, PatternsCutAsTheirAuthorsMeant) {
  const std::pair<const char*, const char*> all[] = {
      {"gpt2", patterns::kGpt2}, {"llama3", patterns::kLlama3}, {"qwen2", patterns::kQwen2}};
  for (const auto& [name, pattern] : all) {
    EXPECT_EQ(golden().at("patterns").at(name).get<std::string>(), pattern);
    PreTokenizer pretokenizer;
    pretokenizer.add(cutting::split(Regex(pattern), SplitBehavior::isolated));
    for (std::size_t k = 0; k < golden().at("strings").size(); ++k) {
      const Pieces pieces = pretokenizer.cut(golden().at("strings")[k].get<std::string>(), true);
      std::vector<std::string> found;
      for (const auto& range : pieces.ranges) found.emplace_back(pieces.piece(range));
      EXPECT_EQ(found, golden().at("splits").at(name)[k].get<std::vector<std::string>>()) << name;
    }
  }
}

TEST(TokenizerGolden, SmolLm2Chat) {
  EXPECT_EQ(Chat("auto", smollm2().get()).render({{"user", "What is the pass key?"}}),
            golden().at("chat_smollm2").get<std::string>());
}

}  // namespace
}  // namespace kvatlas::model
