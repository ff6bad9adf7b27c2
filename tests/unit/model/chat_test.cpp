// SPDX-License-Identifier: Apache-2.0
// Conversations beside what Jinja makes of them with templates of the shapes that models have
// (data/chat_cases.json, by support/make_chat_cases.py).
#include "analyzer/jinja/chat.hpp"

#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "tests/support/model_bytes.hpp"
#include "tests/support/places.hpp"

namespace kvatlas::model {
namespace {

using nlohmann::json;
using testing::HasSubstr;

const std::vector<ChatMessage> kSystemAndUser = {{"system", "S"}, {"user", "U"}};

const char* const kTokenizer = R"({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}})";

/// A tokenizer with that template and tokens.
std::shared_ptr<const Tokenizer> with_template(const std::string& chat_template,
                                               const json& tokens) {
  const testing_support::TemporaryFolder folder;
  folder.write("tokenizer.json", kTokenizer);
  json config = tokens;
  config["chat_template"] = chat_template;
  folder.write("tokenizer_config.json", config.dump());
  return Tokenizer::from_folder(folder.path());
}

TEST(Chat, TheModelsOwnTemplateIsRendered) {
  const json cases = json::parse(std::ifstream(kvatlas::testing_support::source_folder() /
                                               "tests/unit/model/data/chat_cases.json"));
  ASSERT_EQ(cases.at("chats").size(), 17u);
  for (const json& one : cases.at("chats")) {
    SCOPED_TRACE(one.at("name").get<std::string>());
    const auto tokenizer = with_template(one.at("template").get<std::string>(), cases.at("tokens"));
    const Chat chat("auto", tokenizer.get());
    EXPECT_EQ(chat.name(), "auto");
    ASSERT_EQ(one.at("renders").size(), 5u);
    for (const json& render : one.at("renders")) {
      std::vector<ChatMessage> messages;
      for (const json& message : render.at("messages"))
        messages.push_back({message.at("role"), message.at("content")});
      EXPECT_EQ(chat.render(messages), render.at("text").get<std::string>());
    }
  }
}

TEST(Chat, FormatsByNameNeedNoModel) {
  const std::pair<const char*, const char*> expected[] = {
      {"none", "SU"},
      {"chatml",
       "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nU<|im_end|>\n<|im_start|>assistant\n"},
      {"deepseek", "<｜begin▁of▁sentence｜>S<｜User｜>U<｜Assistant｜>"},
      {"gemma", "<bos><start_of_turn>user\nS\n\nU<end_of_turn>\n<start_of_turn>model\n"},
      {"glm4", "[gMASK]<sop><|system|>\nS<|user|>\nU<|assistant|>"},
      {"gpt-oss",
       "<|start|>developer<|message|># Instructions\n\nS\n\n<|end|><|start|>user<|message|>U"
       "<|end|><|start|>assistant"},
      {"granite",
       "<|start_of_role|>system<|end_of_role|>S<|end_of_text|>\n<|start_of_role|>user"
       "<|end_of_role|>U<|end_of_text|>\n<|start_of_role|>assistant<|end_of_role|>"},
      {"llama2", "<s>[INST] <<SYS>>\nS\n<</SYS>>\n\nU [/INST]"},
      {"llama3",
       "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nS<|eot_id|>"
       "<|start_header_id|>user<|end_header_id|>\n\nU<|eot_id|>"
       "<|start_header_id|>assistant<|end_header_id|>\n\n"},
      {"llama4",
       "<|begin_of_text|><|header_start|>system<|header_end|>\n\nS<|eot|>"
       "<|header_start|>user<|header_end|>\n\nU<|eot|>"
       "<|header_start|>assistant<|header_end|>\n\n"},
      {"mistral", "<s>[INST] S\n\nU [/INST]"},
      {"phi3", "<|system|>\nS<|end|>\n<|user|>\nU<|end|>\n<|assistant|>\n"},
      {"phi4",
       "<|im_start|>system<|im_sep|>S<|im_end|><|im_start|>user<|im_sep|>U<|im_end|>"
       "<|im_start|>assistant<|im_sep|>"}};
  std::vector<std::string> names;
  for (const auto& [name, text] : expected) {
    EXPECT_EQ(Chat(name, nullptr).render(kSystemAndUser), text);
    EXPECT_EQ(Chat(name, nullptr).is_bare(), std::string(name) == "none");
    names.emplace_back(name);
  }
  EXPECT_EQ(Chat::format_names(), names);
}

TEST(Chat, EarlierAnswersStandInTheirTurns) {
  const std::vector<ChatMessage> turns = {{"user", "U"}, {"assistant", "A"}, {"user", "V"}};
  const std::pair<const char*, const char*> expected[] = {
      {"deepseek",
       "<｜begin▁of▁sentence｜><｜User｜>U<｜Assistant｜>A<｜end▁of▁sentence｜><｜User｜>V"
       "<｜Assistant｜>"},
      {"gemma",
       "<bos><start_of_turn>user\nU<end_of_turn>\n<start_of_turn>model\nA<end_of_turn>\n"
       "<start_of_turn>user\nV<end_of_turn>\n<start_of_turn>model\n"},
      {"gpt-oss",
       "<|start|>user<|message|>U<|end|><|start|>assistant<|channel|>final<|message|>A<|end|>"
       "<|start|>user<|message|>V<|end|><|start|>assistant"},
      {"llama2", "<s>[INST] U [/INST] A </s><s>[INST] V [/INST]"},
      {"mistral", "<s>[INST] U [/INST]A</s>[INST] V [/INST]"}};
  for (const auto& [name, text] : expected) EXPECT_EQ(Chat(name, nullptr).render(turns), text);
}

// Functions, calls and what they gave back, as Hermes, Qwen and others write them.
constexpr const char* kToolTemplate =
    "{%- if tools %}{{ '<tools>' }}{% for tool in tools %}{{ tool | tojson }}{% endfor %}"
    "{{ '</tools>\\n' }}{% endif %}"
    "{%- for m in messages %}{{ m.role ~ ': ' ~ m.content }}"
    "{%- for call in m.tool_calls %}{{ '<tool_call>{\"name\": ' ~ call.function.name | tojson ~ "
    "', \"arguments\": ' ~ call.function.arguments | tojson ~ '}</tool_call>' }}{% endfor %}"
    "{{ '\\n' }}{% endfor %}{{ 'assistant: ' }}";

TEST(Chat, FunctionsStandWhereTheTemplateHasThem) {
  using ordered = nlohmann::ordered_json;
  const auto tokenizer = with_template(kToolTemplate, json::object());
  const Chat chat("auto", tokenizer.get());
  EXPECT_TRUE(chat.knows_tools());
  EXPECT_FALSE(Chat("chatml", nullptr).knows_tools());
  EXPECT_FALSE(Chat("none", nullptr).knows_tools());
  const auto refuses = with_template("{{ raise_exception('no user') }}", json::object());
  EXPECT_FALSE(Chat("auto", refuses.get()).knows_tools());
  const ordered messages = ordered::parse(R"([
      {"role": "user", "content": "U"},
      {"role": "assistant", "content": "", "tool_calls": [
        {"id": "1", "type": "function", "function": {"name": "find", "arguments": {"z": 1, "a": "b"}}}]},
      {"role": "tool", "content": "R"}])"),
                tools = ordered::parse(R"([{"type": "function", "function": {"name": "find"}}])");
  EXPECT_EQ(chat.render(messages, tools),
            "<tools>{\"type\": \"function\", \"function\": {\"name\": \"find\"}}</tools>\n"
            "user: U\nassistant: <tool_call>{\"name\": \"find\", \"arguments\": {\"z\": 1, \"a\": "
            "\"b\"}}</tool_call>\ntool: R\nassistant: ");
  EXPECT_EQ(chat.render({{"user", "U"}}), "user: U\nassistant: ");
}

std::string complaint(const std::string& chat, const Tokenizer* tokenizer, ErrorCode code) {
  try {
    Chat(chat, tokenizer).render(kSystemAndUser);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code);
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return "";
}

TEST(Chat, WhatCannotBeWrittenIsRefused) {
  EXPECT_THAT(complaint("alpaca", nullptr, ErrorCode::usage),
              HasSubstr("--chat 'alpaca': use auto, or a format: none, chatml, deepseek"));
  const auto bare = Tokenizer::from_json(kTokenizer);
  for (const Tokenizer* tokenizer : {bare.get(), static_cast<const Tokenizer*>(nullptr)})
    EXPECT_THAT(complaint("auto", tokenizer, ErrorCode::usage),
                HasSubstr("the model has no chat template; name a format: none, chatml"));
  const auto lacks = with_template("\n{% extends 'x' %}", json::object());
  EXPECT_EQ(complaint("auto", lacks.get(), ErrorCode::unsupported),
            "the model's chat template: line 2: the tag {% extends %} is not supported");
  const auto refuses = with_template("{{ raise_exception('no system') }}", json::object());
  EXPECT_EQ(complaint("auto", refuses.get(), ErrorCode::unreadable),
            "the model's chat template: line 1: the template refuses the conversation: no system");
}

TEST(Chat, SpecialTokensComeFromTheModelsFiles) {
  const json tokens = {{"bos_token", {{"content", "<s>"}}},
                       {"eos_token", "</s>"},
                       {"pad_token", nullptr},
                       {"add_bos_token", true}};
  const auto tokenizer = with_template(
      "{{ bos_token }}{{ eos_token }}{{ pad_token is defined }}{{ add_bos_token is defined }}",
      tokens);
  EXPECT_EQ(Chat("auto", tokenizer.get()).render({}), "<s></s>FalseFalse");
}

}  // namespace
}  // namespace kvatlas::model
