// SPDX-License-Identifier: Apache-2.0
#include "data/prompts.hpp"

#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "tests/support/error_of.hpp"
#include "tests/unit/data/parse_prompt.hpp"

namespace kvatlas::data {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing_support::error_of;

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
  EXPECT_THAT(wrong("{}"), HasSubstr("of no known layout: its members are none"));
  EXPECT_THAT(wrong(R"({"context":""})"), HasSubstr("exactly one of"));
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
      R"({"text":"a","seed":4,"group":"needle/4"})",
      R"({"text":"a","answer_prefix":" It is","max_new_tokens":5})",
      R"({"task":"trec","context":"C ","question":"Q","answer_prefix":"A:","answers":["x"],"max_new_tokens":128})",
      R"({"context":"C","input":"Q3","answers":["3"],"group":"g","turn":3,"earlier":[{"input":"Q1","answer":"1"},{"input":"Q2","answer":"2"}]})"};
  for (const std::string line : lines) EXPECT_EQ(prompt_line(parse_prompt(line)), line);
}

TEST(Prompts, RulersLayoutHoldsTheWholePromptAndTheBeginningOfItsAnswer) {
  const auto line = parse_line(
      R"({"index":3,"input":"Text. What are the numbers?","outputs":["12","34"],"length":812,)"
      R"("length_w_model_temp":812,"answer_prefix":" The numbers are","token_position_answer":7})",
      {"line 4", "niah_multivalue"});
  ASSERT_EQ(line.prompts.size(), 1u);
  const Prompt& prompt = line.prompts[0];
  EXPECT_EQ(prompt.id, "line 4");
  EXPECT_EQ(prompt.as_text(), "Text. What are the numbers?");
  EXPECT_EQ(prompt.with_answer_prefix(), "Text. What are the numbers? The numbers are");
  EXPECT_THAT(prompt.answers, ElementsAre("12", "34"));
  EXPECT_EQ(prompt.task, "niah_multivalue");
  EXPECT_EQ(prompt.metric, "found");
  EXPECT_EQ(prompt.max_new_tokens, 128);
  EXPECT_THAT(line.unread, ElementsAre("index", "length_w_model_temp", "token_position_answer"));
  // One of the answers suffices where several are right, as RULER scores its questions.
  EXPECT_EQ(parse_line(R"({"input":"i","outputs":["a","b"],"task":"qa_1"})").prompts[0].metric,
            "any");
}

TEST(Prompts, KvpresssLayoutJoinsContextAndQuestionAsTheyAre) {
  const Prompt prompt = parse_prompt(
      R"({"context":"Long.\n","question":"Who?\n","answer_prefix":"Answer: ","answer":"Ann",)"
      R"("task":"shortdep_qa","max_new_tokens":300})");
  EXPECT_EQ(prompt.as_text(), "Long.\nWho?\n");
  EXPECT_EQ(prompt.with_answer_prefix(), "Long.\nWho?\n\nAnswer: ");
  EXPECT_THAT(prompt.answers, ElementsAre("Ann"));
  EXPECT_EQ(prompt.metric, "rouge_l");
  EXPECT_EQ(prompt.max_new_tokens, 300);
  EXPECT_THAT(parse_prompt(R"({"context":"c","question":"q","answer":["x",5]})").answers,
              ElementsAre("x", "5"));
  EXPECT_TRUE(parse_prompt(R"({"context":"c","question":"q","answer":""})").answers.empty());
  // A whole number that pandas wrote as a float; and LongBench's template is not filled again.
  const Prompt filled =
      parse_prompt(R"({"context":"c ","question":"q","task":"trec","max_new_tokens":64.0})");
  EXPECT_EQ(filled.max_new_tokens, 64);
  EXPECT_EQ(filled.as_text(), "c q");
}

TEST(Prompts, ScbenchsTurnsAreQuestionsOnOneContext) {
  const auto line = parse_line(
      R"({"id":7,"context":"Book.","lang":"en","multi_turns":[{"input":"One?","answer":"1"},)"
      R"({"input":"Two?","answer":["2","II"],"name":"n"},)"
      R"({"input":"Which?","answer":["west","D"],"options":["north","east","south","west"]}]})",
      {"line 1", "scbench_many_shot"});
  ASSERT_EQ(line.prompts.size(), 3u);
  const auto& turns = line.prompts;
  EXPECT_EQ(turns[0].as_text(), "Book.\n\nOne?");
  EXPECT_THAT(turns[1].answers, ElementsAre("2", "II"));
  EXPECT_EQ(turns[1].metric, "any");
  EXPECT_EQ(turns[1].id, "7/2");
  for (const auto& turn : turns) {
    EXPECT_EQ(turn.group, "7");
    EXPECT_EQ(turn.context, "Book.");
    EXPECT_EQ(turn.max_new_tokens, 10);
  }
  EXPECT_EQ(turns[2].input,
            "What is the correct answer to this question: Which?\nChoices:\n(A) north\n(B) east\n"
            "(C) south\n(D) west\n\nFormat your response as follows: \"The correct answer is "
            "(insert answer here)\".");
  EXPECT_THAT(turns[2].answers, ElementsAre("D"));
  EXPECT_EQ(turns[2].metric, "choice");
  EXPECT_THAT(line.unread, ElementsAre("multi_turns.name", "lang"));

  // In a conversation the earlier turns stand before a turn, with what was right.
  for (std::size_t i = 0; i < turns.size(); ++i) {
    EXPECT_EQ(turns[i].turn, static_cast<std::int64_t>(i) + 1);
    EXPECT_THAT(turns[i].earlier, testing::SizeIs(i));
  }
  Prompt last = turns[2];
  EXPECT_THAT(last.messages(), ElementsAre("Book.\n\n" + last.input));
  last.follows = true;
  EXPECT_THAT(last.messages(), ElementsAre("Book.\n\nOne?", "1", "Two?", "2, II", last.input));
  EXPECT_EQ(last.as_text(), "Book.\n\nOne? 1\n\nTwo? 2, II\n\n" + last.input);
  EXPECT_EQ(last.first_turn().as_text(), "Book.\n\nOne?");
}

TEST(Prompts, EarlierTurnsAreChecked) {
  const auto refusal = [](const std::string& members) {
    return error_of([&] { parse_prompt("{" + members + "}"); });
  };
  EXPECT_THAT(refusal(R"("text":"t","earlier":[{"input":"q"}])"), HasSubstr("'context'"));
  EXPECT_THAT(refusal(R"("context":"c","input":"q","earlier":"x")"), HasSubstr("list of turns"));
  EXPECT_THAT(refusal(R"("context":"c","input":"q","earlier":[7])"), HasSubstr("'earlier'"));
  EXPECT_THAT(refusal(R"("context":"c","input":"q","earlier":[{"answer":"a"}])"),
              HasSubstr("'input' is missing"));
}

TEST(Prompts, LongBenchV2sChoicesFillItsTemplate) {
  const std::string choices =
      R"("choice_A":"a ","choice_B":"b","choice_C":"c","choice_D":"d","answer":"B")";
  const auto line =
      parse_line(R"({"_id":"66f","domain":"Law","difficulty":"easy","length":"short",)"
                 R"("question":" Why? ","context":"\nDoc.\n",)" +
                 choices + "}");
  ASSERT_EQ(line.prompts.size(), 1u);
  const Prompt& prompt = line.prompts[0];
  EXPECT_EQ(prompt.id, "66f");
  EXPECT_EQ(prompt.as_text(),
            "Please read the following text and answer the question below.\n\n<text>\nDoc.\n</text>"
            "\n\nWhat is the correct answer to this question: Why?\nChoices:\n(A) a\n(B) b\n(C) c\n"
            "(D) d\n\nFormat your response as follows: \"The correct answer is (insert answer "
            "here)\".");
  EXPECT_THAT(prompt.answers, ElementsAre("B"));
  EXPECT_EQ(prompt.metric, "choice");
  EXPECT_EQ(prompt.max_new_tokens, 16);
  EXPECT_EQ(prompt.length, 0);
  EXPECT_THAT(line.unread, ElementsAre("difficulty", "domain"));
  // kvpress's copy is filled already.
  const Prompt copy =
      parse_prompt(R"({"context":"C ","question":"Q","answer_prefix":"F","max_new_tokens":148,)" +
                   choices + "}");
  EXPECT_EQ(copy.with_answer_prefix(), "C Q\nF");
  EXPECT_EQ(copy.metric, "choice");
  EXPECT_EQ(copy.max_new_tokens, 148);
  // What the task says of its answers holds in this layout too, or the written line would be read
  // as another prompt.
  const Prompt chinese =
      parse_prompt(R"({"context":"C","question":"Q","task":"scbench_qa_chn",)" + choices + "}");
  EXPECT_EQ(chinese.metric, "choice");
  EXPECT_EQ(chinese.language, "zh");
  EXPECT_EQ(prompt_line(parse_prompt(prompt_line(chinese))), prompt_line(chinese));
}

TEST(Prompts, WrongMembersOfOthersLayoutsAreNamed) {
  const auto wrong = [](const std::string& line) { return error_of([&] { parse_line(line); }); };
  EXPECT_THAT(wrong(R"({"query":"q","docs":[1]})"),
              AllOf(HasSubstr("of no known layout: its members are 'docs', 'query'"),
                    HasSubstr("RULER's layout (input, outputs)")));
  EXPECT_THAT(wrong(R"({"input":"i","outputs":[]})"), HasSubstr("'outputs' is an empty list"));
  EXPECT_THAT(wrong(R"({"outputs":["a"]})"), HasSubstr("'input' is missing or empty"));
  EXPECT_THAT(wrong(R"({"input":"i","outputs":{"a":1}})"), HasSubstr("'outputs' is neither"));
  EXPECT_THAT(wrong(R"({"context":"c","question":"q","input":"i"})"),
              HasSubstr("'question' makes it a line of kvpress's layout"));
  EXPECT_THAT(wrong(R"({"input":"i","outputs":["a"],"multi_turns":[]})"),
              HasSubstr("which has no 'outputs': one line cannot mix layouts"));
  EXPECT_THAT(wrong(R"({"context":"c","question":"q","answer":[]})"),
              HasSubstr("'answer' is an empty list"));
  EXPECT_THAT(wrong(R"({"context":"c","question":["q"]})"), HasSubstr("'question' is not a text"));
  EXPECT_THAT(wrong(R"({"text":"a","answer_prefix":1})"),
              HasSubstr("'answer_prefix' is not a text"));
  for (const char* count : {"0", "-1", "1.5", "1e9", "\"8\"", "1048577", "[]"})
    EXPECT_THAT(wrong(str(R"({"text":"a","max_new_tokens":)", count, "}")),
                HasSubstr("'max_new_tokens' is "))
        << count;
  EXPECT_THAT(wrong(R"({"context":"c","multi_turns":[]})"), HasSubstr("not a list of turns"));
  EXPECT_THAT(wrong(R"({"context":"c","multi_turns":[5]})"),
              HasSubstr("turn 1: not a JSON object"));
  EXPECT_THAT(wrong(R"({"context":"c","multi_turns":[{"input":"a"},{"answer":"a"}]})"),
              HasSubstr("turn 2: 'input' is missing"));
  EXPECT_THAT(wrong(R"({"multi_turns":[{"input":"a"}]})"), HasSubstr("is missing or empty"));
  const std::string turn =
      R"({"context":"c","multi_turns":[{"input":"a","options":["x","y","z","w"],)";
  EXPECT_THAT(wrong(turn + R"("answer":"v"}]})"), HasSubstr("nor one of the options"));
  EXPECT_THAT(wrong(R"({"context":"c","multi_turns":[{"input":"a","options":["x"]}]})"),
              HasSubstr("'options' holds 1 texts, expected 4"));
  const std::string choices = R"({"context":"c","question":"q","choice_A":"a","choice_B":"b",)";
  EXPECT_THAT(wrong(choices + R"("choice_D":"d","answer":"A"})"),
              HasSubstr("'choice_C' is missing"));
  EXPECT_THAT(wrong(choices + R"("choice_C":"c","choice_D":"d","answer":"E"})"),
              HasSubstr("'answer' is 'E', expected A, B, C or D"));
}

TEST(Prompts, QuestionsOnOneContextAreAGroupAndUnreadMembersAreCollected) {
  const auto path = std::filesystem::temp_directory_path() / "scbench_kv.jsonl";
  std::ofstream(path) << R"({"context":"one","question":"a","answer":"x","note":1})" << '\n'
                      << R"({"context":"two","question":"a","answer":"x"})" << '\n'
                      << R"({"context":"one","question":"b","answer":"x","extra":null})" << '\n'
                      << R"({"context":"c","multi_turns":[{"input":"i","answer":"x"}]})" << '\n';
  const auto read = read_prompts(path);
  std::filesystem::remove(path);
  ASSERT_EQ(read.prompts.size(), 4u);
  EXPECT_EQ(read.prompts[0].group, "context of line 1");
  EXPECT_EQ(read.prompts[1].group, "context of line 2");
  EXPECT_EQ(read.prompts[2].group, "context of line 1");
  EXPECT_EQ(read.prompts[3].group, "line 4");
  EXPECT_EQ(read.prompts[3].id, "line 4/1");
  EXPECT_EQ(read.prompts[3].task, "scbench_kv");
  EXPECT_EQ(read.prompts[3].max_new_tokens, 150);
  EXPECT_THAT(read.unread, ElementsAre("extra", "note"));
}

TEST(Prompts, FilesNameTheLine) {
  const auto path = std::filesystem::temp_directory_path() / "kvatlas_prompts_test.jsonl";
  std::ofstream(path) << "{\"text\":\"one\"}\n\n{\"text\":\"two\",\"id\":\"second\"}\n";
  const auto prompts = read_prompts(path).prompts;
  ASSERT_EQ(prompts.size(), 2u);
  EXPECT_EQ(prompts[0].id, "line 1");
  EXPECT_EQ(prompts[1].id, "second");
  std::ofstream(path) << "{\"text\":\"one\"}\nnonsense\n";
  EXPECT_THAT(error_of([&] { read_prompts(path); }), HasSubstr(".jsonl:2: not JSON"));
  std::ofstream(path) << "\n";
  EXPECT_THAT(error_of([&] { read_prompts(path); }), HasSubstr("holds no prompts"));
  std::filesystem::remove(path);
  EXPECT_THAT(error_of([&] { read_prompts(path); }), HasSubstr("there is no file"));
  EXPECT_THAT(error_of([&] { read_prompts("/"); }), HasSubstr("is a folder"));
}

}  // namespace
}  // namespace kvatlas::data
