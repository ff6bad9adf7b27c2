// SPDX-License-Identifier: Apache-2.0
#include "data/prompts.hpp"

#include <filesystem>
#include <fstream>
#include <functional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"

namespace kvatlas::data {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string error_of(const std::function<void()>& fn) {
  try {
    fn();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Prompts, TheThreeWaysOfSayingAPrompt) {
  EXPECT_THAT(parse_prompt(R"({"tokens":[1,2,3],"id":"a","task":"t"})").tokens,
              ElementsAre(1, 2, 3));
  EXPECT_EQ(parse_prompt(R"({"text":"hello"})").as_text(), "hello");
  const Prompt prompt = parse_prompt(
      R"({"context":"Long.","input":"Q?","answers":["x","y"],"length":12,"dataset":"d","id":7})");
  EXPECT_EQ(prompt.as_text(), "Long.\n\nQ?");
  EXPECT_THAT(prompt.answers, ElementsAre("x", "y"));
  EXPECT_EQ(prompt.id, "7");
}

TEST(Prompts, WrongLinesSayWhatIsWrong) {
  const auto wrong = [](const std::string& line) { return error_of([&] { parse_prompt(line); }); };
  EXPECT_THAT(wrong("{"), HasSubstr("not JSON"));
  EXPECT_THAT(wrong(R"({"tokens":[1],"seed":1e999})"), HasSubstr("a number beyond 1e308"));
  EXPECT_THAT(wrong("[1]"), HasSubstr("not a JSON object"));
  EXPECT_THAT(wrong("{}"), HasSubstr("exactly one of"));
  EXPECT_THAT(wrong(R"({"text":"a","tokens":[1]})"), HasSubstr("exactly one of"));
  EXPECT_THAT(wrong(R"({"text":5})"), HasSubstr("'text' is not a text"));
  EXPECT_THAT(wrong(R"({"tokens":[]})"), HasSubstr("not a list of token ids"));
  EXPECT_THAT(wrong(R"({"tokens":[1.5]})"), HasSubstr("1.5"));
  EXPECT_THAT(wrong(R"({"tokens":[18446744073709551615]})"), HasSubstr("not a token id"));
  EXPECT_THAT(wrong(R"({"text":"a","answers":[1]})"), HasSubstr("answers"));
  EXPECT_THAT(wrong(R"({"text":"a","all_classes":"x"})"), HasSubstr("'all_classes' is not a list"));
  EXPECT_THAT(wrong(R"({"text":"a","dataset":["x"]})"), HasSubstr("'dataset' is not a text"));
  EXPECT_THAT(wrong(R"({"text":"a","metric":"bleu"})"),
              HasSubstr("'metric': there is no metric 'bleu'; there are found, any, f1"));
  EXPECT_THAT(wrong(std::string(100000, '[')), HasSubstr("nested too deeply"));
}

TEST(Prompts, HowTheyWereMade) {
  const Prompt made = parse_prompt(R"({"text":"a","length":2048,"depth":0.25,"seed":7})");
  EXPECT_EQ(made.length, 2048);
  EXPECT_EQ(made.depth, 0.25);
  EXPECT_EQ(made.seed, 7);
  EXPECT_EQ(parse_prompt(R"({"text":"a","depth":1})").depth, 1);
}

TEST(Prompts, OthersMayMeanOtherThingsByHowTheyWereMade) {
  const auto expect_passed_over = [](const std::string& fields) {
    const Prompt given = parse_prompt(R"({"text":"a")" + fields + "}");
    EXPECT_EQ(given.text, "a") << fields;
    EXPECT_EQ(given.length, 0) << fields;
    EXPECT_EQ(given.depth, -1) << fields;
    EXPECT_EQ(given.seed, -1) << fields;
  };
  expect_passed_over("");
  for (const char* value :
       {"null", "-1", "1.5", "\"short\"", "9223372036854775808", "1e3", "[]", "{}", "true"})
    for (const char* key : {"length", "depth", "seed"})
      expect_passed_over(str(",\"", key, "\":", value));
  for (const char* value : {"-0.1", "1.01", "\"0.5\"", "1e300"})
    expect_passed_over(str(",\"depth\":", value));
}

TEST(Prompts, AreReadBackAsTheyWereWritten) {
  const char* const lines[] = {
      R"({"id":"a","task":"t","tokens":[1,2,3]})",
      R"({"text":"two\nlines \"quoted\"","length":12})",
      R"({"id":"needle/9/0.10/3","context":"C","input":"","answers":["x","y"],"length":9,"depth":0.1,"seed":3})",
      R"({"context":"","input":"Q","depth":0.0,"seed":0})",
      R"({"task":"lsht","context":"C","input":"Q","answers":["x"],"all_classes":["x","y"],"language":"zh","metric":"f1"})",
      R"({"text":"a","seed":4,"group":"needle/4"})"};
  for (const std::string line : lines) EXPECT_EQ(prompt_line(parse_prompt(line)), line);
}

TEST(Prompts, FilesNameTheLine) {
  const auto path = std::filesystem::temp_directory_path() / "kvatlas_prompts_test.jsonl";
  std::ofstream(path) << "{\"text\":\"one\"}\n\n{\"text\":\"two\",\"id\":\"second\"}\n";
  const auto prompts = read_prompts(path);
  ASSERT_EQ(prompts.size(), 2u);
  EXPECT_EQ(prompts[0].id, "line 1");
  EXPECT_EQ(prompts[1].id, "second");
  std::ofstream(path) << "{\"text\":\"one\"}\nnonsense\n";
  EXPECT_THAT(error_of([&] { read_prompts(path); }), HasSubstr(".jsonl:2: not JSON"));
  std::ofstream(path) << "\n";
  EXPECT_THAT(error_of([&] { read_prompts(path); }), HasSubstr("holds no prompts"));
  std::filesystem::remove(path);
  EXPECT_THAT(error_of([&] { read_prompts(path); }), HasSubstr("cannot be opened"));
  EXPECT_THAT(error_of([&] { read_prompts("/"); }), HasSubstr("is a folder"));
}

}  // namespace
}  // namespace kvatlas::data
