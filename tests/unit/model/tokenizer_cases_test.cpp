// SPDX-License-Identifier: Apache-2.0
// Every normalizer, pre-tokenizer, decoder and kind of added token of tokenizer.json beside what
// the package tokenizers makes of it (data/tokenizer_cases.json, by
// support/make_tokenizer_cases.py).
#include <fstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "analyzer/tokenizer/tokenizer.hpp"
#include "tests/support/places.hpp"
#include "tests/support/tokenizer_checks.hpp"

namespace kvatlas::model {
namespace {

using nlohmann::json;
using Ids = std::vector<std::int64_t>;

TEST(TokenizerCases, EncodeAndDecodeAsTheTokenizersPackageDoes) {
  const json data = json::parse(std::ifstream(kvatlas::testing_support::source_folder() /
                                              "tests/unit/model/data/tokenizer_cases.json"));
  const json& texts = data.at("texts");
  ASSERT_EQ(texts.size(), 24u);
  ASSERT_EQ(data.at("cases").size(), 58u);
  for (const json& one : data.at("cases")) {
    SCOPED_TRACE(one.at("name").get<std::string>());
    json file = one.at("parts");
    file["model"] = data.at("models").at(one.at("model").get<std::string>());
    const auto tokenizer = Tokenizer::from_json(file.dump());
    for (std::size_t k = 0; k < texts.size(); ++k) {
      const auto text = texts[k].get<std::string>();
      SCOPED_TRACE(text);
      const Ids expected = one.at("ids")[k].get<Ids>();
      EXPECT_EQ(tokenizer->encode(text), expected);
      EXPECT_EQ(tokenizer->encode(text, {.add_special = false, .parse_special = false}),
                one.at("plain_ids")[k].get<Ids>());
      testing_support::expect_streaming(tokenizer, expected);
      if (!one.contains("text")) continue;
      EXPECT_EQ(tokenizer->decode(expected), one.at("text")[k].get<std::string>());
      EXPECT_EQ(tokenizer->decode(expected, true),
                one.at("text_without_special")[k].get<std::string>());
    }
  }
}

}  // namespace
}  // namespace kvatlas::model
