// SPDX-License-Identifier: Apache-2.0
// Calls of functions in the forms in which models write them, and what each part of one is worth.
#include "data/call_scores.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "data/prompts.hpp"
#include "data/scores.hpp"
#include "tests/support/error_of.hpp"

namespace kvatlas::data {
namespace {

using testing::HasSubstr;
using testing_support::error_of;

const std::string kFind =
    R"({"name":"find","arguments":{"city":"Oslo","days":3},"parameters":{"type":"object",)"
    R"("properties":{"city":{"type":"string"},"days":{"type":"integer"},)"
    R"("unit":{"enum":["C","F"]}},"required":["city","days"],"additionalProperties":false}})";
const std::string kSend = R"({"name":"send","arguments":{}})";

double of_find(const std::string& generated) { return call_parts({{kFind}}, generated).score(); }

TEST(CallScores, EveryFormOfARightCallIsRight) {
  for (
      const char* text :
      {R"( {"name": "find", "arguments": {"city": "Oslo", "days": 3}})",
       R"(I look it up. {"name": "find", "parameters": {"days": 3, "city": "Oslo"}} There.)",
       R"(<tool_call>{"name": "find", "arguments": {"city": "Oslo", "days": 3.0}}</tool_call>)",
       R"([TOOL_CALLS] [{"name": "find", "arguments": {"city": "Oslo", "days": 3}, "id": "1"}])",
       R"([TOOL_CALLS]find[ARGS]{"city": "Oslo", "days": 3})",
       R"(find{"city": "Oslo", "days": 3})",
       "find\n{\"city\": \"Oslo\", \"days\": 3}",
       "<｜tool▁call▁begin｜>function<｜tool▁sep｜>find\n```json\n{\"city\": \"Oslo\", \"days\": "
       "3}\n```",
       R"(<｜tool▁call▁begin｜>find<｜tool▁sep｜>{"city": "Oslo", "days": 3}<｜tool▁call▁end｜>)",
       R"(to=functions.find <|constrain|>json<|message|>{"city": "Oslo", "days": 3}<|call|>)",
       R"(<|tool_call_begin|>functions.find:0<|tool_call_argument_begin|>{"city": "Oslo", "days": 3})",
       R"(commentary to=functions.find json{"city": "Oslo", "days": 3})",
       R"(functions.find:0{"city": "Oslo", "days": 3})",
       R"(<function=find>{"city": "Oslo", "days": 3}</function>)",
       R"([find(city="Oslo", days=3)])",
       R"(<|python_start|>[find(days=+3, city='Os\x6co',)]<|python_end|>)",
       R"(<|tool_call_start|>[find(city='Oslo', days=3)]<|tool_call_end|><|im_end|>)",
       "```tool_code\nfind(city = \"Oslo\", days = 3)\n```",
       R"(find(city="Oslo", days=3))",
       R"({"type": "function", "function": {"name": "find", "arguments": "{\"city\": \"Oslo\", \"days\": 3}"}})",
       R"({"content": null, "tool_calls": [{"function": {"name": "find", "arguments": {"city": "Oslo", "days": 3}}}]})",
       "<tool_call>\n<function=find>\n<parameter=city>\nOslo\n</parameter>\n<parameter=days>\n3\n"
       "</parameter>\n</function>\n</tool_call>",
       "<tool_call>find\n<arg_key>city</arg_key>\n<arg_value>Oslo</arg_value>\n<arg_key>days</"
       "arg_key>\n"
       "<arg_value>3</arg_value>\n</tool_call>",
       R"(<think>{"name": "send", "arguments": {}}</think>{"name": "find", "arguments": {"city": "Oslo", "days": 3}})",
       "{\"name\": \"find\", \"arguments\": {\"city\": \"Oslo\", \"days\": 3}}\n\nResult: "
       "4\n\nUser: On.\n\n"
       "Call: {\"name\": \"send\", \"arguments\": {}}"})
    EXPECT_EQ(of_find(text), 1) << text;
}

TEST(CallScores, PythonsValuesAreThoseOfJson) {
  const std::string wanted =
      R"({"name":"set.all","arguments":{"a":[1,-2.5,true,null],"b":{"k":"it's \"é\"\n"},"c":[]}})";
  EXPECT_EQ(call_parts({{wanted}},
                       R"([set.all(a=[1, -2.5, True, None], b={'k': "it's \"\u00e9\"\n"}, c=())])")
                .score(),
            1);
  EXPECT_EQ(call_parts({{kFind, kSend}}, R"([send(), find(city="Oslo", days=3)])").score(), 1);
  EXPECT_EQ(
      call_parts({{kFind, kSend}}, "```tool_code\nfind(city='Oslo', days=3)\nsend()\n```").score(),
      1);
}

TEST(CallScores, OfPythonThatBreaksOffTheNameIsKnown) {
  for (const char* text :
       {R"([find(city="Os)", "[find(\"Oslo\", 3)]", "[find(city=Oslo)]",
        "[find(city='Oslo' days=3)]", "<|python_start|>find(city='Oslo', days=", "[find("})
    EXPECT_EQ(of_find(text), 0.5) << text;
  for (const char* text : {"find(city='Oslo", "find(x) is a function.", "[1, 2]", "[find]", "find(",
                           "find(city='Oslo') and more", ""})
    EXPECT_EQ(of_find(text), 0) << text;
  const std::string deep = "[find(city=" + std::string(100'000, '[');
  EXPECT_EQ(of_find(deep), 0.5);
}

TEST(CallScores, EachPartCounts) {
  const auto expect = [](const std::string& text, double call, double name, double valid,
                         double arguments) {
    const CallParts parts = call_parts({{kFind}}, text);
    EXPECT_EQ(parts.call, call) << text;
    EXPECT_EQ(parts.name, name) << text;
    EXPECT_EQ(parts.valid, valid) << text;
    EXPECT_DOUBLE_EQ(parts.arguments, arguments) << text;
    EXPECT_DOUBLE_EQ(parts.score(), (call + name + valid + arguments) / 4) << text;
  };
  expect("Oslo has 3 days.", 0, 0, 0, 0);
  expect("", 0, 0, 0, 0);
  expect(R"({"city": "Oslo", "days": 3})", 0, 0, 0, 0);
  expect(R"(Here is find as json {"city": "Oslo", "days": 3})", 0, 0, 0, 0);
  expect(R"(The call of find: {"city": "Oslo", "days": 3})", 0, 0, 0, 0);
  expect(R"({"name": "send", "arguments": {"city": "Oslo", "days": 3}})", 1, 0, 0, 0);
  // What caches of few bits do: the call is there, and its arguments are gone.
  expect(R"({"name": "find", "arguments": {}})", 1, 1, 0, 0);
  expect(R"({"name": "find", "arguments": ""})", 1, 1, 0, 0);
  expect(R"({"name": "find", "arguments": null})", 1, 1, 0, 0);
  expect(R"({"name": "find"})", 1, 1, 0, 0);
  expect(R"({"name": "find", "arguments": [1]})", 1, 1, 0, 0);
  expect(R"({"name": "find", "arguments": {"city": "Oslo", "days": )", 1, 1, 0, 0);
  expect(R"({"name": "find", "arguments": {"city": Oslo}})", 1, 1, 0, 0);
  expect(R"({"name": "find", "arguments": "{\"city\""})", 1, 1, 0, 0);
  expect(R"({"name": "find", "arguments": {"city": "Rome", "days": 3}})", 1, 1, 1, 0.5);
  expect(R"({"name": "find", "arguments": {"city": "Oslo", "days": "3"}})", 1, 1, 0, 0.5);
  expect(R"({"name": "find", "arguments": {"city": "Oslo", "days": 3, "unit": "C"}})", 1, 1, 1,
         2.0 / 3);
  expect(R"({"name": "find", "arguments": {"city": "Oslo", "days": 3, "unit": "K"}})", 1, 1, 0,
         2.0 / 3);
  expect(R"({"name": "find", "arguments": {"city": "Oslo", "days": 3, "more": 1}})", 1, 1, 0,
         2.0 / 3);
}

TEST(CallScores, ACallWithoutArgumentsWantsNone) {
  EXPECT_EQ(call_parts({{kSend}}, R"({"name": "send", "arguments": {}})").score(), 1);
  EXPECT_EQ(call_parts({{kSend}}, R"({"name": "send", "arguments": {"a": 1}})").score(), 0.75);
}

TEST(CallScores, SeveralCallsInAnyOrderAndNoMore) {
  const std::vector<std::string> both = {kFind, kSend};
  const std::string find = R"({"name": "find", "arguments": {"city": "Oslo", "days": 3}})",
                    send = R"({"name": "send", "arguments": {}})";
  EXPECT_EQ(call_parts(both, find + send).score(), 1);
  EXPECT_EQ(call_parts(both, "[" + send + ", " + find + "]").score(), 1);
  EXPECT_EQ(call_parts(both, find).score(), 0.5);
  EXPECT_DOUBLE_EQ(call_parts(both, find + find).score(), 0.5 * (1 + 0.25));
  EXPECT_EQ(call_parts({{kFind}}, find + send).score(), 0.5);
  EXPECT_EQ(call_parts({{kFind}}, find + find).score(), 0.5);
}

TEST(CallScores, SchemasAreUnderstoodAsFarAsFunctionsNeedThem) {
  const auto valid = [](const std::string& schema, const std::string& arguments) {
    const std::string answer =
        R"({"name":"f","arguments":{"other":1},"parameters":)" + schema + "}";
    return call_parts({{answer}}, R"({"name": "f", "arguments": )" + arguments + "}").valid == 1;
  };
  EXPECT_TRUE(valid("{}", R"({"a": 1})"));
  EXPECT_TRUE(valid("true", R"({"a": 1})"));
  EXPECT_FALSE(valid("false", R"({"a": 1})"));
  EXPECT_TRUE(valid("false", R"({"other": 1})"));  // as recorded, whatever the schema says
  const std::string a = R"({"properties": {"a": )";
  EXPECT_TRUE(valid(a + R"({"type": ["string", "null"]}}})", R"({"a": null})"));
  EXPECT_FALSE(valid(a + R"({"type": ["string", "null"]}}})", R"({"a": 1})"));
  EXPECT_TRUE(valid(a + R"({"type": "integer"}}})", R"({"a": 2.0})"));
  EXPECT_FALSE(valid(a + R"({"type": "integer"}}})", R"({"a": 2.5})"));
  EXPECT_FALSE(valid(a + R"({"type": "boolean"}}})", R"({"a": "true"})"));
  EXPECT_TRUE(
      valid(a + R"({"type": "array", "items": {"type": "number"}}}})", R"({"a": [1, 2.5]})"));
  EXPECT_FALSE(
      valid(a + R"({"type": "array", "items": {"type": "number"}}}})", R"({"a": [1, "b"]})"));
  EXPECT_TRUE(valid(a + R"({"anyOf": [{"type": "string"}, {"type": "null"}]}}})", R"({"a": "x"})"));
  EXPECT_FALSE(valid(a + R"({"anyOf": [{"type": "string"}, {"type": "null"}]}}})", R"({"a": 1})"));
  EXPECT_FALSE(valid(a + R"({"allOf": [{"type": "string"}, {"enum": ["y"]}]}}})", R"({"a": "x"})"));
  EXPECT_FALSE(valid(a + R"({"const": 3}}})", R"({"a": 4})"));
  EXPECT_FALSE(valid(R"({"additionalProperties": {"type": "string"}})", R"({"a": 1})"));
  EXPECT_FALSE(valid(a + R"({"type": "object", "required": ["b"]}}})", R"({"a": {}})"));
  // What it does not know, or what is no schema, lets all pass.
  EXPECT_TRUE(valid(R"({"$ref": "#", "type": 7, "required": 3, "properties": [], "enum": {}})",
                    R"({"a": 1})"));
}

TEST(CallScores, HostileAnswersEndSoon) {
  const std::string deep(200'000, '{'), quotes(200'000, '"');
  std::string many;
  for (int i = 0; i < 5000; ++i) many += R"({"name": "find", "arguments": {}} )";
  std::string nested;
  for (int i = 0; i < 2000; ++i) nested += R"({"name":{)";
  for (const auto& text : {deep, quotes, deep + quotes, nested, std::string("{\"name\""),
                           std::string("{\"name\":"), std::string("{\"name\":\""),
                           std::string("<function=<parameter="), std::string("\0{\xff}", 4),
                           std::string(R"({"name": "find", "arguments": {"days": 1e999}})"),
                           std::string("<tool_call><arg_key><arg_value></arg_value>")}) {
    const double score = of_find(text);
    EXPECT_TRUE(score >= 0 && score <= 0.5) << text.substr(0, 40) << ' ' << score;
  }
  EXPECT_LT(of_find(many), 0.1);
}

TEST(CallScores, ArePartOfAPromptsScore) {
  Prompt prompt;
  prompt.metric = "calls";
  prompt.answers = {kFind};
  EXPECT_EQ(metric_name(prompt), "calls right by part");
  EXPECT_EQ(score(prompt, R"({"name": "find", "arguments": {}})"), 0.5);
  EXPECT_FALSE(is_settled(prompt, R"({"name": "find", "arguments": {"city": "Oslo", "days": 3}})"));
  EXPECT_EQ(prompt_call_parts(prompt, "no")->call, 0);
  prompt.answers = {"Oslo"};
  EXPECT_THAT(error_of([&] { score(prompt, "x"); }), HasSubstr("not valid JSON"));
  prompt.answers = {R"({"name": "find"})"};
  EXPECT_THAT(error_of([&] { score(prompt, "x"); }), HasSubstr("no call of a function"));
  prompt.metric = "found";
  EXPECT_FALSE(prompt_call_parts(prompt, "x"));
}

}  // namespace
}  // namespace kvatlas::data
