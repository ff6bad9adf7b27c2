// SPDX-License-Identifier: Apache-2.0
// Each format read: what the tools wrote themselves where they could be run, else their documented
// layouts; and what is refused, in one sentence with its place.
#include <algorithm>
#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "calibrate/certify/formats_impl.hpp"
#include "calibrate/certify/pairing.hpp"
#include "tests/support/error_of.hpp"
#include "tests/unit/certify/files.hpp"

namespace kvatlas::calibrate {
namespace {

using testing::AllOf;
using testing::DoubleNear;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;
using testing_support::error_of;
using testing_support::read_one;
using testing_support::ResultFolder;
using testing_support::written_by_tool;

double mean_score(const ResultFile& file) {
  double sum = 0;
  for (const auto& answer : file.answers) sum += answer.score;
  return sum / static_cast<double>(file.answers.size());
}

TEST(ResultFiles, LmEvalAsItWritesThem) {
  const ReadRequest strict{.filter = "strict", .group = "doc.subject"};
  const auto full = read_one(written_by_tool("lm-eval/full"), strict);
  EXPECT_EQ(full.format, "lm-eval");
  EXPECT_EQ(full.metric, "exact_match,strict");
  ASSERT_THAT(full.answers, SizeIs(60));
  EXPECT_EQ(full.answers[0].task, "sums");
  EXPECT_EQ(full.answers[5].group, "set 2");
  EXPECT_THAT(full.answers[2].where, HasSubstr("samples_sums"));
  // The mean that lm-eval wrote beside it.
  ASSERT_THAT(full.own_means, SizeIs(1));
  EXPECT_NEAR(full.own_means[0].mean, mean_score(full), 1e-9);
  EXPECT_THAT(doubts_of({&full, 1}), IsEmpty());
  // Answers in words are right only behind the filter that finds numbers.
  const auto number = read_one(written_by_tool("lm-eval/full"), {.filter = "number"});
  EXPECT_GT(mean_score(number), mean_score(full));
  EXPECT_THAT(error_of([] { read_one(written_by_tool("lm-eval/full")); }),
              AllOf(HasSubstr("samples_sums"), HasSubstr("more than one filter"),
                    HasSubstr("--filter"), HasSubstr("strict")));
  EXPECT_THAT(error_of([] { read_one(written_by_tool("lm-eval/full"), {.metric = "acc"}); }),
              AllOf(HasSubstr("no metric 'acc'"), HasSubstr("'exact_match'")));
  EXPECT_THAT(error_of([&] {
                read_one(written_by_tool("lm-eval/full"), {.filter = "strict", .group = "doc.x"});
              }),
              AllOf(HasSubstr(":"), HasSubstr("'doc.x'"), HasSubstr("--group")));
}

TEST(ResultFiles, LmEvalTotals) {
  const auto path = written_by_tool("lm-eval/full/results_2026-11-28T12-00-00.000000.json");
  const auto totals = read_one(path, {.filter = "strict"});
  EXPECT_EQ(totals.format, "lm-eval-totals");
  ASSERT_THAT(totals.totals, SizeIs(1));
  EXPECT_EQ(totals.totals[0].count, 60);
  EXPECT_NEAR(totals.totals[0].mean,
              mean_score(read_one(written_by_tool("lm-eval/full"), {.filter = "strict"})), 1e-9);
}

TEST(ResultFiles, InspectAiAsItWritesThem) {
  const auto kv4 = read_one(written_by_tool("inspect-ai/kv4"));
  EXPECT_EQ(kv4.format, "inspect-ai");
  EXPECT_EQ(kv4.metric, "includes");
  EXPECT_THAT(kv4.answers, SizeIs(120));  // two epochs
  ASSERT_THAT(kv4.own_means, SizeIs(1));
  EXPECT_NEAR(kv4.own_means[0].mean, mean_score(kv4), 1e-9);
}

TEST(ResultFiles, KvpressAsPandasWritesThem) {
  const auto kv4 = read_one(written_by_tool("kvpress/kv4"));
  EXPECT_EQ(kv4.format, "kvpress");
  EXPECT_THAT(kv4.answers, SizeIs(60));
  EXPECT_EQ(kv4.settings.at("seed"), "42");
  ASSERT_THAT(kv4.own_means, SizeIs(2));
  EXPECT_THAT(doubts_of({&kv4, 1}), IsEmpty());  // metrics.json, as its scorer makes it
}

TEST(ResultFiles, AnsweredPrompts) {
  const ResultFolder folder;
  const auto path = folder.write(
      "kv4.jsonl",
      R"({"id": "a", "task": "passkey", "group": "passkey/7", "answers": ["1234"], "generated": " 1299"})"
      "\n"
      R"({"id": "b", "task": "needle", "answers": ["12", "34"], "text": "Two?", "generated": "12"})"
      "\n"
      R"({"id": "c", "answers": ["x"], "metric": "exact", "context": "C", "input": "Q", "generated": "x"})");
  const auto file = read_one(path);
  EXPECT_EQ(file.format, "kvatlas");
  ASSERT_THAT(file.answers, SizeIs(3));
  EXPECT_EQ(file.answers[0].task, "passkey");
  EXPECT_EQ(file.answers[0].text, "passkey/7");
  EXPECT_EQ(file.answers[1].text, "b");
  EXPECT_EQ(file.answers[2].where, "kv4.jsonl:3");
  std::vector<double> scores;
  for (const auto& answer : file.answers) scores.push_back(answer.score);
  EXPECT_THAT(scores, ElementsAre(0.0, 0.5, 1.0));
  // Another prompt, other answers or another metric are another question.
  const auto other = read_one(folder.write(
      "other.jsonl",
      R"({"id": "b", "task": "needle", "answers": ["12", "34"], "text": "Three?", "generated": "12"})"));
  EXPECT_NE(other.answers[0].same, file.answers[1].same);
  const auto refused = [&](const char* line) {
    return error_of([&] { read_one(folder.write("x.jsonl", line)); });
  };
  EXPECT_THAT(refused(R"({"id": "b", "answers": [], "generated": "12"})"),
              AllOf(HasSubstr("line 1"), HasSubstr("no answers")));
  EXPECT_THAT(refused(R"({"id": "b", "answers": ["1"], "generated": ["12"]})"),
              HasSubstr("'generated' is neither a text nor a number"));
  EXPECT_THAT(refused(R"({"id": "b", "answers": ["1"], "metric": "luck", "generated": "12"})"),
              HasSubstr("luck"));
}

TEST(ResultFiles, Ruler) {
  const ResultFolder folder;
  const auto path = folder.write("niah_multivalue.jsonl",
                                 "{\"index\": 0, \"pred\": \"It is 12 and 7.\", \"input\": "
                                 "\"long\", \"outputs\": [\"12\", \"34\"], "
                                 "\"others\": {}, \"truncation\": -1, \"length\": 4096}\n"
                                 "{\"index\": 1, \"pred\": \"34\", \"input\": \"other\", "
                                 "\"outputs\": [\"34\"], \"length\": 4096}\n");
  const auto file = read_one(path);
  EXPECT_EQ(file.format, "ruler");
  ASSERT_THAT(file.answers, SizeIs(2));
  EXPECT_EQ(file.answers[0].score, 0.5);
  EXPECT_EQ(file.answers[1].score, 1);
  EXPECT_NE(file.answers[0].text, file.answers[1].text);
  // A task by another name has no metric until it is given one.
  const auto renamed = folder.write(
      "mine.jsonl",
      "{\"index\": 0, \"pred\": \"12\", \"input\": \"a\", \"outputs\": [\"12\", \"3\"]}\n");
  EXPECT_THAT(error_of([&] { read_one(renamed); }),
              AllOf(HasSubstr("mine.jsonl: line 1"), HasSubstr("'mine'"), HasSubstr("--metric")));
  EXPECT_EQ(read_one(renamed, {.metric = "any"}).answers.at(0).score, 1);
}

TEST(ResultFiles, LongBench) {
  const ResultFolder folder;
  const auto path = folder.write("trec.jsonl",
                                 "{\"pred\": \"Location\\nmore\", \"answers\": [\"Location\"], "
                                 "\"all_classes\": [\"Location\", "
                                 "\"Person\"], \"length\": 4000}\n"
                                 "{\"pred\": \"Person\", \"answers\": [\"Location\"], "
                                 "\"all_classes\": [\"Location\", \"Person\"], "
                                 "\"length\": 4100}\n");
  folder.write("result.json", "{\"trec\": 50.0}");
  const auto file = read_one(path);
  EXPECT_EQ(file.format, "longbench");
  EXPECT_EQ(file.same_key, SameKey::ambiguous);
  EXPECT_EQ(mean_score(file), 0.5);
  EXPECT_THAT(doubts_of({&file, 1}), IsEmpty());
  folder.write("result.json", "{\"trec\": 75.5}");
  const auto other = read_one(path);
  EXPECT_THAT(doubts_of({&other, 1}), ElementsAre(AllOf(HasSubstr("trec.jsonl"),
                                                        HasSubstr("0.7550"), HasSubstr("0.5000"))));
}

TEST(ResultFiles, LongBenchV2) {
  const ResultFolder folder;
  const auto file = read_one(folder.write(
      "model.jsonl",
      "{\"_id\": \"66f36490\", \"domain\": \"Single\", \"difficulty\": \"hard\", \"length\": "
      "\"short\", "
      "\"answer\": \"A\", \"response\": \"The correct answer is (A)\", \"pred\": \"A\", \"judge\": "
      "true}\n"
      "{\"_id\": \"66f36491\", \"answer\": \"A\", \"pred\": null, \"judge\": false}\n"));
  EXPECT_EQ(file.format, "longbench-v2");
  EXPECT_EQ(mean_score(file), 0.5);
}

TEST(ResultFiles, Helmet) {
  const ResultFolder folder;
  const auto path = folder.write(
      "json_kv_eval_in8192.json",
      "{\n    \"args\": {\"datasets\": \"json_kv\", \"seed\": 42},\n    \"data\": [\n        "
      "{\"id\": 4, "
      "\"input_text\": \"x\", \"substring_exact_match\": 1.0, \"input_len\": 9},\n        {\"id\": "
      "5, "
      "\"substring_exact_match\": false, \"input_len\": 9}\n    ],\n    \"metrics\": "
      "{\"substring_exact_match\": [1.0, 0.0], \"input_len\": [9, 9]},\n    \"averaged_metrics\": "
      "{\"substring_exact_match\": 50.0, \"input_len\": 9.0, \"output_len\": 3.0}\n}\n");
  const auto file = read_one(path);
  EXPECT_EQ(file.format, "helmet");
  EXPECT_EQ(file.metric, "substring_exact_match");
  ASSERT_THAT(file.answers, SizeIs(2));
  EXPECT_EQ(file.answers[0].task, "json_kv");
  EXPECT_EQ(file.answers[0].key, "4");
  EXPECT_THAT(doubts_of({&file, 1}), IsEmpty());
}

TEST(ResultFiles, OpenCompass) {
  const ResultFolder folder;
  const auto predictions = folder.write(
      "run/predictions/m/gsm8k.json",
      "{\"0\": {\"origin_prompt\": \"q0\", \"prediction\": \"The answer is 4\", \"gold\": \"4\"},\n"
      "\"1\": {\"origin_prompt\": [{\"role\": \"HUMAN\", \"prompt\": \"q1\"}], \"prediction\": "
      "\"5\", "
      "\"gold\": \"6\"}}\n");
  EXPECT_THAT(error_of([&] { read_one(predictions); }), HasSubstr("--metric"));
  EXPECT_EQ(mean_score(read_one(predictions, {.metric = "final"})), 0.5);
  // As version 0.5 writes details: a list, each answer in a list of its own.
  folder.write(
      "run/results/m/gsm8k.json",
      "{\"accuracy\": 50.0, \"details\": [{\"example_abbr\": \"gsm8k_0\", \"pred\": [\"4\"], "
      "\"answer\": [\"4\"], \"correct\": [true]}, {\"example_abbr\": \"gsm8k_1\", \"pred\": "
      "[\"5\"], \"answer\": [\"6\"], \"correct\": [false]}]}\n");
  const auto file = read_one(predictions);
  EXPECT_EQ(file.format, "opencompass");
  ASSERT_THAT(file.answers, SizeIs(2));
  EXPECT_EQ(mean_score(file), 0.5);
  EXPECT_EQ(file.answers[0].key, "gsm8k_0");
  EXPECT_NE(file.answers[0].text, "");
  EXPECT_NE(file.answers[0].text, file.answers[1].text);
  EXPECT_THAT(doubts_of({&file, 1}), IsEmpty());
  // A run's folder holds both; each answer counts once.
  EXPECT_THAT(read_results(folder.path() + "/run", {}), SizeIs(1));
  // As before: under their keys.
  folder.write("old/results/m/bbh.json",
               "{\"score\": 50.0, \"details\": {\"type\": \"GEN\", \"0\": {\"prompt\": \"a\", "
               "\"correct\": true}, \"1\": {\"prompt\": \"b\", \"correct\": false}}}");
  EXPECT_EQ(mean_score(read_one(folder.path() + "/old")), 0.5);
}

TEST(ResultFiles, EvalPlus) {
  const ResultFolder folder;
  const std::string text =
      "{\"date\": \"2026-11-28 12:00\", \"hash\": \"ab\", \"eval\": {\"HumanEval/0\": "
      "[{\"task_id\": "
      "\"HumanEval/0\", \"solution\": \"\", \"base_status\": \"pass\", \"plus_status\": \"fail\"}, "
      "{\"task_id\": \"HumanEval/0\", \"base_status\": \"pass\", \"plus_status\": \"pass\"}], "
      "\"HumanEval/1\": [{\"task_id\": \"HumanEval/1\", \"base_status\": \"timeout\", "
      "\"plus_status\": "
      "\"fail\"}, {\"base_status\": \"pass\", \"plus_status\": \"fail\"}]}, \"pass_at_k\": "
      "{\"base\": "
      "{\"pass@1\": 0.75}, \"plus\": {\"pass@1\": 0.25}}}";
  const auto path = folder.write("m_eval_results.json", text);
  const auto plus = read_one(path);
  EXPECT_EQ(plus.format, "evalplus");
  EXPECT_EQ(plus.metric, "plus");
  EXPECT_EQ(plus.same_key, SameKey::repeat);
  EXPECT_THAT(plus.answers, SizeIs(4));
  EXPECT_THAT(doubts_of({&plus, 1}), IsEmpty());
  const auto base = read_one(path, {.metric = "base"});
  EXPECT_EQ(mean_score(base), 0.75);
  EXPECT_THAT(doubts_of({&base, 1}), IsEmpty());
}

TEST(ResultFiles, EvalScope) {
  const ResultFolder folder;
  const auto file =
      read_one(folder.write("gsm8k_main.jsonl",
                            "{\"index\": 0, \"target\": [\"4\"], \"messages\": [{\"role\": "
                            "\"user\", \"content\": \"q\"}, "
                            "{\"role\": \"assistant\", \"content\": \"4\"}], \"sample_score\": "
                            "{\"score\": {\"value\": {\"acc\": "
                            "1.0}, \"prediction\": \"4\"}, \"sample_id\": 0, \"group_id\": 0}}\n"
                            "{\"index\": 1, \"target\": [\"4\"], \"messages\": [{\"role\": "
                            "\"user\", \"content\": \"q\"}, "
                            "{\"role\": \"assistant\", \"content\": \"5\"}], \"sample_score\": "
                            "{\"score\": {\"value\": {\"acc\": "
                            "0}}, \"sample_id\": 1, \"group_id\": 0}}\n"
                            "{\"index\": 2, \"sample_score\": {\"score\": {\"value\": {}, "
                            "\"status\": \"judge_error\"}}}\n"));
  EXPECT_EQ(file.format, "evalscope");
  ASSERT_THAT(file.answers, SizeIs(2));  // what could not be scored has no score
  EXPECT_EQ(file.answers[0].text, file.answers[1].text);
}

TEST(ResultFiles, WhatIsRefused) {
  const ResultFolder folder;
  struct Case {
    const char *name, *text, *says;
  };
  const Case cases[] = {
      {"empty.jsonl", " \n", "is empty"},
      {"words.txt", "nothing,here\n", "of no known format"},
      {"other.json", "{\"a\": 1}", "'a'"},
      {"log.eval", "PK\x03\x04 and more", "inspect log convert"},
      {"samples_p.jsonl",
       "{\"doc_id\": 0, \"filtered_resps\": [], \"metrics\": [\"ppl\"], \"filter\": \"none\", "
       "\"ppl\": "
       "[-3.5, 7]}\n",
       "is a list"},
      {"samples_n.jsonl",
       "{\"doc_id\": 0, \"filtered_resps\": [], \"metrics\": [\"acc\"], \"filter\": \"none\", "
       "\"acc\": "
       "\"yes\"}\n",
       "expected a number"},
      {"samples_cut.jsonl",
       "{\"doc_id\": 0, \"filtered_resps\": [], \"metrics\": [\"acc\"], \"acc\": 1}\n{\"doc_id\": "
       "1, \"filt",
       "line 2: not valid JSON"},
      {"samples_nan.jsonl",
       "{\"doc_id\": 0, \"filtered_resps\": [], \"metrics\": [\"acc\"], \"acc\": 1}\n{\"doc_id\": "
       "1, "
       "\"filtered_resps\": [], \"acc\": NaN}\n",
       "line 2: not valid JSON"},
      {"samples_missing.jsonl",
       "{\"doc_id\": 0, \"filtered_resps\": [], \"metrics\": [\"acc\"], \"acc\": 1}\n{\"doc_id\": "
       "1}\n",
       "line 2: 'acc' is missing"},
      {"predictions.csv", "question,answer,task,predicted_answer\nq,\"a\n",
       "a field in quotes does not end"},
      {"predictions2.csv", "question,answer,task,predicted_answer\nq,a,qa_1\n", "expected 4"},
      {"predictions3.csv", "question,answer,task,predicted_answer\nq,['a' ... 'b'],qa_1,a\n",
       "was shortened"},
      {"predictions4.csv", "question,task,predicted_answer\nq,qa_1,a\n", "no column 'answer'"},
      {"trec.jsonl", "{\"pred\": \"a\", \"answers\": [], \"length\": 3}\n", "no answers"},
      {"x_eval_results.json", "{\"hash\": \"\", \"eval\": {\"a\": [{\"base_status\": 3}]}}",
       "'base_status'"},
      {"helmet.json", "{\"data\": 3, \"averaged_metrics\": {}}", "no list"},
      {"log.json", "{\"eval\": {\"task\": \"t\"}, \"samples\": []}", "no samples"}};
  for (const auto& one : cases) {
    const auto path = folder.write(one.name, one.text);
    const std::string said = error_of([&] { read_one(path); });
    EXPECT_THAT(said, AllOf(HasSubstr(one.name), HasSubstr(one.says))) << one.name;
    EXPECT_EQ(said.find('\n'), said.npos) << said;
  }
  const std::string deep(100, '[');
  EXPECT_THAT(error_of([&] { read_one(folder.write("deep.json", deep)); }), HasSubstr("deeper"));
  EXPECT_THAT(error_of([&] { read_one(folder.path() + "/none.json"); }), HasSubstr("none.json"));
  EXPECT_THAT(error_of([&] {
                folder.write("e/a.json", "{}");
                read_one(folder.path() + "/e");
              }),
              HasSubstr("holds no result file"));
  EXPECT_THAT(error_of([&] { read_one(folder.path(), {.format = "excel"}); }),
              AllOf(HasSubstr("no format 'excel'"), HasSubstr("lm-eval")));
}

TEST(ResultFiles, CsvOfPandas) {
  CsvReader csv("f.csv",
                "\xef\xbb\xbf"
                "a,b\r\n\"x \"\"y\"\",\nz\",\n,last");
  std::vector<std::string> row;
  ASSERT_TRUE(csv.next(row));
  EXPECT_THAT(row, ElementsAre("a", "b"));
  ASSERT_TRUE(csv.next(row));
  EXPECT_THAT(row, ElementsAre("x \"y\",\nz", ""));
  EXPECT_EQ(csv.where(), "f.csv:2");
  ASSERT_TRUE(csv.next(row));
  EXPECT_THAT(row, ElementsAre("", "last"));
  EXPECT_EQ(csv.where(), "f.csv:4");
  EXPECT_FALSE(csv.next(row));
  CsvReader behind("f.csv", "\"a\"b\n");
  EXPECT_THAT(error_of([&] { behind.next(row); }), HasSubstr("goes on behind its quotes"));
}

TEST(ResultFiles, ListsOfPython) {
  EXPECT_THAT(python_texts("plain, text"), ElementsAre("plain, text"));
  EXPECT_THAT(python_texts("['a' 'it''s']"), ElementsAre("a", "it", "s"));
  EXPECT_THAT(python_texts("['one two'\n \"it's\", 3]"), ElementsAre("one two", "it's", "3"));
  EXPECT_THAT(python_texts(R"(['a\'b\\n\n\x41\u00e9\U0001f600\q'])"),
              ElementsAre("a'b\\n\nA\u00e9\U0001f600\\q"));
  EXPECT_THAT(python_texts("[]"), IsEmpty());
  for (const char* cut : {"[", "['a", "['a'", "['\\", "['\\u00", "[1 2"})
    EXPECT_THAT(error_of([&] { python_texts(cut); }), HasSubstr("list")) << cut;
}

}  // namespace
}  // namespace kvatlas::calibrate
