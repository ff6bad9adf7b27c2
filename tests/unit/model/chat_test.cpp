// SPDX-License-Identifier: Apache-2.0
// Conversations beside what Jinja makes of them with the models' templates
// (data/chat_cases.json, by support/make_chat_cases.py).
#include "analyzer/model/chat.hpp"

#include <fstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "tests/support/places.hpp"

namespace kvatlas::model {
namespace {

using nlohmann::json;

TEST(Chat, RendersAsTheModelsTemplatesDo) {
  const json cases = json::parse(std::ifstream(kvatlas::testing_support::source_folder() /
                                               "tests/unit/model/data/chat_cases.json"));
  ASSERT_EQ(cases.size(), 16u);
  for (const json& one : cases) {
    SCOPED_TRACE(one.at("name").get<std::string>());
    const auto chat_template = one.at("template").get<std::string>();
    const auto format = recognise_chat_format(chat_template);
    ASSERT_TRUE(format);
    EXPECT_EQ(chat_format_name(*format), one.at("format").get<std::string>());
    ASSERT_GE(one.at("renders").size(), 3u);
    for (const json& render : one.at("renders")) {
      std::vector<ChatMessage> messages;
      for (const json& message : render.at("messages")) {
        messages.push_back({message.at("role"), message.at("content")});
      }
      EXPECT_EQ(render_chat(*format, messages, chat_template, one.at("bos").get<std::string>()),
                render.at("text").get<std::string>());
    }
  }
}

TEST(Chat, FormatsAreNamed) {
  for (const char* name : {"none", "chatml", "llama2", "llama3", "mistral", "phi3"}) {
    const auto format = chat_format_named(name);
    ASSERT_TRUE(format) << name;
    EXPECT_STREQ(chat_format_name(*format), name);
  }
  EXPECT_FALSE(chat_format_named("alpaca"));
}

TEST(Chat, UnknownTemplatesAreNotTakenForKnownOnes) {
  for (const char* unknown :
       {"", "{{ '### Instruction:\\n' + message['content'] }}",
        "{{ '<start_of_turn>' + role + '\\n' + message['content'] + '<end_of_turn>\\n' }}",
        "{{ '<|im_start|>user<|im_sep|>' + message['content'] + '<|im_end|>' }}",
        "{{ '<|user|>\\n' + message['content'] + eos_token }}"}) {
    EXPECT_FALSE(recognise_chat_format(unknown)) << unknown;
  }
}

TEST(Chat, FormatsHaveTheirUsualSpellingWithoutATemplate) {
  const std::vector<ChatMessage> messages = {{"system", "S"}, {"user", "U"}};
  const std::pair<ChatFormat, const char*> expected[] = {
      {ChatFormat::none, "SU"},
      {ChatFormat::chatml,
       "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nU<|im_end|>\n<|im_start|>assistant\n"},
      {ChatFormat::llama2, "<s>[INST] <<SYS>>\nS\n<</SYS>>\n\nU [/INST]"},
      {ChatFormat::llama3,
       "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nS<|eot_id|>"
       "<|start_header_id|>user<|end_header_id|>\n\nU<|eot_id|>"
       "<|start_header_id|>assistant<|end_header_id|>\n\n"},
      {ChatFormat::mistral, "<s>[INST] S\n\nU [/INST]"},
      {ChatFormat::phi3, "<|system|>\nS<|end|>\n<|user|>\nU<|end|>\n<|assistant|>\n"}};
  for (const auto& [format, text] : expected) EXPECT_EQ(render_chat(format, messages), text);
}

TEST(Chat, UnknownRolesAreRefused) {
  try {
    render_chat(ChatFormat::chatml, {{"tool", "x"}});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::usage);
    EXPECT_NE(std::string(error.what()).find("'tool'"), std::string::npos) << error.what();
  }
}

TEST(Chat, HostileTemplatesEnd) {
  const std::vector<ChatMessage> messages = {{"user", "U"}};
  for (const std::string cut :
       {"'<|im_start|>system", "'<|im_start|>system\\", "'<|im_start|>system\\n x",
        "<|im_start|>system\\n<|im_end|>'", "'<|im_start|>system<|im_end|>'"}) {
    EXPECT_EQ(render_chat(ChatFormat::chatml, messages, cut),
              "<|im_start|>user\nU<|im_end|>\n<|im_start|>assistant\n")
        << cut;
  }
  // Each of these literals runs to the end of the text.
  std::string many;
  for (int k = 0; k < 200'000; ++k) many += "\\'<|im_start|>system";
  EXPECT_FALSE(render_chat(ChatFormat::chatml, messages, many).empty());
  EXPECT_FALSE(render_chat(ChatFormat::chatml, messages, many + "'").empty());
}

}  // namespace
}  // namespace kvatlas::model
