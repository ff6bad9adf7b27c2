// SPDX-License-Identifier: Apache-2.0
// Transcripts in OpenAI's form, and the prompts of the task "tools", which are written as such.
#include "data/tool_chat.hpp"

#include <cstdlib>
#include <fstream>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "base/str.hpp"
#include "data/call_scores.hpp"
#include "data/scores.hpp"
#include "data/tasks.hpp"
#include "tests/support/error_of.hpp"
#include "tests/support/places.hpp"
#include "tests/unit/data/parse_prompt.hpp"
#include "tests/unit/data/token_counters.hpp"

namespace kvatlas::data {
namespace {

using ordered = nlohmann::ordered_json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing_support::error_of;

const std::string kTools =
    R"([{"type":"function","function":{"name":"find","parameters":{"type":"object",)"
    R"("properties":{"z":{"type":"string"},"a":{"type":"string"}}}}},{"name":"stop"}])";

std::string call(const std::string& name, const std::string& arguments) {
  return R"({"role":"assistant","content":null,"tool_calls":[{"id":"1","type":"function",)"
         R"("function":{"name":")" +
         name + R"(","arguments":)" + arguments + "}}]}";
}

std::string line_of(const std::string& messages, const std::string& more = "") {
  return R"({"messages":[)" + messages + R"(],"tools":)" + kTools + more + "}";
}

const std::string kSystem = R"({"role":"system","content":"Help."})",
                  kUser = R"({"role":"user","content":"Find z."})",
                  kResult = R"({"role":"tool","tool_call_id":"1","content":"Z is 7."})",
                  kFind = call("find", R"("{\"z\": \"1\"}")"),
                  kText = R"({"role":"assistant","content":"Here it is."})";

TEST(Transcripts, TheLastCallIsTheAnswer) {
  const Prompt prompt = parse_prompt(line_of(kSystem + "," + kUser + "," + kFind + "," + kResult +
                                                 "," + call("stop", R"("")") + "," + kText,
                                             R"(,"id":"t1")"));
  EXPECT_EQ(prompt.id, "t1");
  EXPECT_EQ(prompt.metric, "calls");
  EXPECT_THAT(prompt.answers, ElementsAre(R"({"name":"stop","arguments":{}})"));
  EXPECT_EQ(
      prompt.as_text(),
      "Functions can be called. Each is described by one of these lines of JSON:\n\n"
      R"({"name":"find","parameters":{"type":"object","properties":{"z":{"type":"string"},)"
      R"("a":{"type":"string"}}}})"
      "\n{\"name\":\"stop\"}\n\n"
      "A call is one line, such as: Call: {\"name\": \"open\", \"arguments\": {\"page\": 1}}. "
      "What it gives back follows it as Result.\n\n"
      "System: Help.\n\nUser: Find z.\n\nCall: {\"name\":\"find\",\"arguments\":{\"z\":\"1\"}}\n\n"
      "Result: Z is 7.\n\nCall:");
  EXPECT_EQ(prompt.input, "Result: Z is 7.\n\nCall:");
  EXPECT_EQ(score(prompt, R"( {"name": "stop", "arguments": {}})"), 1);
  // A chat is given the messages as they are; its template the arguments as objects.
  const ordered sent = messages_for_calls(prompt), rendered = template_messages(prompt);
  ASSERT_EQ(sent.size(), 4u);
  EXPECT_EQ(sent[2]["tool_calls"][0]["function"]["arguments"], R"({"z": "1"})");
  EXPECT_EQ(rendered[2]["tool_calls"][0]["function"]["arguments"], ordered({{"z", "1"}}));
  EXPECT_EQ(ordered::parse(prompt.tools)[1],
            ordered({{"type", "function"}, {"function", {{"name", "stop"}}}}));
}

TEST(Transcripts, ManyWaysOfSayingTheSame) {
  const Prompt first = parse_prompt(line_of(kUser + "," + kFind));
  EXPECT_THAT(first.answers.at(0), HasSubstr(R"("parameters":{"type":"object")"));
  EXPECT_EQ(first.input, "User: Find z.\n\nCall:");
  EXPECT_GE(first.max_new_tokens, 32);
  // Arguments as an object, contents as parts, tools as text.
  const std::string parts =
      R"({"role":"user","content":[{"type":"text","text":"Find "},{"type":"text","text":"z."}]})";
  const Prompt other = parse_prompt(
      R"({"messages":[)" + parts + "," + call("find", R"({"z":"1"})") + R"(],"tools":)" +
      ordered(kTools).dump() + R"(,"max_new_tokens":9,"metric":"found"})");
  EXPECT_EQ(other.as_text(), first.as_text());
  EXPECT_EQ(other.answers, first.answers);
  EXPECT_EQ(other.max_new_tokens, 9);
  EXPECT_EQ(other.metric, "found");
  // Two calls at once are two answers.
  const std::string two =
      R"({"role":"assistant","tool_calls":[{"function":{"name":"stop"}},{"function":{"name":"find",)"
      R"("arguments":"{}"}}]})";
  EXPECT_EQ(parse_prompt(line_of(kUser + "," + two)).answers.size(), 2u);
}

TEST(Transcripts, HostileOnesAreRefusedInASentence) {
  const auto wrong = [](const std::string& line) { return error_of([&] { parse_line(line); }); };
  const auto said = [&](const std::string& messages) { return wrong(line_of(messages)); };
  EXPECT_THAT(said(kUser + "," + kText), HasSubstr("no message of the assistant calls a function"));
  EXPECT_THAT(said(kFind), HasSubstr("nothing is said before the call"));
  EXPECT_THAT(said(""), HasSubstr("'messages' is no list of messages"));
  EXPECT_THAT(wrong(R"({"messages":7})"), HasSubstr("'tools' is no list of functions"));
  EXPECT_THAT(wrong(R"({"messages":7,"tools":[{"name":"f"}]})"),
              HasSubstr("'messages' is no list of messages"));
  EXPECT_THAT(said(kUser + "," + call("gone", "{}")),
              HasSubstr("of 'gone', which is none of the functions in 'tools'"));
  EXPECT_THAT(said(kUser + "," + call("", "{}")), HasSubstr("a call in 'tool_calls' has no name"));
  EXPECT_THAT(said(kUser + "," + call("find", R"("{\"z\"")")),
              HasSubstr("the arguments of a call of 'find': not valid JSON"));
  EXPECT_THAT(said(kUser + "," + call("find", R"("[1]")")), HasSubstr("are no JSON object"));
  EXPECT_THAT(said(kUser + "," + call("find", "7")), HasSubstr("are no JSON object"));
  EXPECT_THAT(said(R"({"role":"robot","content":"x"},)" + kFind),
              HasSubstr("a message's 'role' is \"robot\", expected user, assistant"));
  EXPECT_THAT(said("7," + kFind), HasSubstr("'role' is missing"));
  EXPECT_THAT(said(R"({"role":"user","content":[{"type":"image_url"}]},)" + kFind),
              HasSubstr("neither a text nor a list of texts"));
  EXPECT_THAT(said(R"({"role":"user","content":7},)" + kFind), HasSubstr("neither a text"));
  EXPECT_THAT(said(kUser + R"(,{"role":"assistant","tool_calls":[7]})"),
              HasSubstr("'tool_calls' holds something that is no call"));
  EXPECT_THAT(said(kUser + R"(,{"role":"assistant","tool_calls":{"a":1}})"),
              HasSubstr("'tool_calls' is no list of calls"));
  std::string calls;
  for (std::size_t i = 0; i <= kMostCalls; ++i)
    calls += str(i > 0 ? "," : "", R"({"function":{"name":"stop"}})");
  EXPECT_THAT(said(kUser + R"(,{"role":"assistant","tool_calls":[)" + calls + "]}"),
              HasSubstr("a message makes 65 calls, expected at most 64"));
  for (const char* tools : {"[]", "[7]", R"([{"function":7}])", R"("[")", R"([{"name":""}])"})
    EXPECT_NE(wrong(R"({"messages":[)" + kUser + "," + kFind + R"(],"tools":)" + tools + "}"), "")
        << tools;
  std::string members;
  for (int i = 0; i < 5000; ++i) members += str(i > 0 ? "," : "", "\"m", i, "\":1");
  EXPECT_THAT(said(kUser + "," + call("find", "{" + members + "}")),
              HasSubstr("an object has 5000 members, expected at most 4096"));
  EXPECT_THAT(wrong(line_of(kUser + "," + kFind, R"(,"text":"x")")),
              HasSubstr("one line cannot mix layouts"));
  EXPECT_THAT(wrong(line_of(kUser + "," + kFind, R"(,"earlier":[{"input":"x"}])")),
              HasSubstr("'earlier': 'messages' is no list of messages"));
  EXPECT_THAT(wrong(R"({"text":"x","metric":"calls","answers":["y"]})"),
              HasSubstr("not valid JSON"));
}

TEST(ToolsTask, IsWrittenAsATranscriptAndReadBack) {
  for (const std::int64_t turn : {1, 3}) {
    const Prompt prompt =
        make_prompt({"tools:functions=5,turns=3", 1500, 0.4, 2, turn}, of_prompts(count_quads));
    const std::string line = prompt_line(prompt);
    const Prompt again = parse_prompt(line);
    EXPECT_EQ(prompt_line(again), line);
    EXPECT_EQ(again.as_text(), prompt.as_text());
    EXPECT_EQ(again.answers, prompt.answers);
    EXPECT_EQ(again.tools, prompt.tools);
    EXPECT_EQ(again.context_messages, prompt.context_messages);
    EXPECT_EQ(again.turn, turn);
    ASSERT_EQ(again.earlier.size(), static_cast<std::size_t>(turn - 1));
    for (std::size_t i = 0; i < again.earlier.size(); ++i) {
      EXPECT_EQ(again.earlier[i].answer, prompt.earlier[i].answer);
      EXPECT_EQ(again.earlier[i].answer_messages, prompt.earlier[i].answer_messages);
    }
  }
}

TEST(ToolsTask, ItsArgumentsStandInANoteOnAPage) {
  for (const std::uint64_t seed : {0, 1, 2}) {
    const Prompt prompt =
        make_prompt({"tools:functions=12,arguments=4", 4000, 0.7, seed}, of_prompts(count_quads));
    const ordered answer = ordered::parse(prompt.answers.at(0)),
                  tools = ordered::parse(prompt.tools);
    ASSERT_EQ(tools.size(), 13u);  // and the one that reads pages
    EXPECT_EQ(answer["arguments"].size(), 4u);
    EXPECT_EQ(answer["parameters"]["required"].size(), 4u);
    for (const auto& [name, value] : answer["arguments"].items()) {
      const std::string text = value.is_string() ? value.get<std::string>() : value.dump();
      EXPECT_THAT(prompt.context, HasSubstr(' ' + text));
      EXPECT_THAT(prompt.input, Not(HasSubstr(text)));
      EXPECT_TRUE(answer["parameters"]["properties"].contains(name));
    }
    EXPECT_THAT(prompt.context, HasSubstr(answer["name"].get<std::string>()));
    EXPECT_EQ(call_parts(prompt.answers, ' ' + prompt.answers[0]).score(), 1);
    // Messages and text say the same, and every note is whole.
    std::size_t notes = 0;
    for (const auto& message : messages_for_calls(prompt)) {
      const std::string content = message["content"].get<std::string>();
      EXPECT_THAT(prompt.as_text(), HasSubstr(content));
      for (auto at = content.find("Note on the "); at != content.npos;
           at = content.find("Note on the ", at + 1)) {
        ++notes;
        EXPECT_LT(content.find('.', at), content.size());
      }
    }
    EXPECT_EQ(notes, 4u);
  }
}

TEST(ToolsTask, AConversationGoesOnBehindEachCall) {
  Prompt last =
      make_prompt({"tools:functions=4,turns=2", 1500, 0.4, 2, 2}, of_prompts(count_quads));
  const std::size_t alone = messages_for_calls(last).size();
  EXPECT_THAT(last.as_text(), Not(HasSubstr(last.earlier[0].input)));
  last.follows = true;
  const ordered said = messages_for_calls(last);
  EXPECT_EQ(said.size(), alone + 4);  // the question, the call, what came of it, and a word
  EXPECT_EQ(said[alone - 1]["content"],
            ordered::parse(last.earlier[0].input_messages)[0]["content"]);
  EXPECT_THAT(last.as_text(), HasSubstr(last.earlier[0].input + " {\"name\":"));
  EXPECT_EQ(messages_for_calls(last.first_turn()).size(), alone);
  EXPECT_EQ(messages_for_calls(last.first_turn()).back(), said[alone - 1]);
}

// Written anew with KVATLAS_WRITE_GOLDEN=1: look at it then, for it changes everybody's prompts.
TEST(ToolsTask, APromptStaysTheSame) {
  const auto path = testing_support::source_folder() / "tests/unit/data/tools_prompt.jsonl";
  const std::string line =
      prompt_line(make_prompt({"tools:functions=3,notes=2,turns=2,haystack=repeat", 800, 0.5, 1, 2},
                              of_prompts(count_quads))) +
      "\n";
  if (std::getenv("KVATLAS_WRITE_GOLDEN")) {
    std::ofstream(path) << line;
    FAIL() << "written anew: look at " << path << ", then run without KVATLAS_WRITE_GOLDEN";
  }
  std::ostringstream kept;
  kept << std::ifstream(path).rdbuf();
  EXPECT_EQ(line, kept.str());
}

}  // namespace
}  // namespace kvatlas::data
