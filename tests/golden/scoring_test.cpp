// SPDX-License-Identifier: Apache-2.0
// `profile`, `calibrate` and `evaluate` score one file of prompts alike.
#include <filesystem>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/str.hpp"
#include "calibrate/policy/policy.hpp"
#include "tests/support/golden.hpp"
#include "tests/support/model_bytes.hpp"
#include "tests/support/places.hpp"
#include "tests/support/run_program.hpp"

namespace kvatlas {
namespace {

using namespace testing_support;
using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

constexpr const char* kExamples =
    "Question: What country is Cairo in?\nType: Location\nQuestion: Who discovered penicillin?\n"
    "Type: Human\nQuestion: Where is Lake Geneva?\nType: Location\n";

/// Questions about kinds of answers, as in TREC, with their two classes.
std::string questions() {
  const std::pair<const char*, const char*> asked[] = {
      {"What is the capital of France", "Location"}, {"Who wrote Hamlet", "Human"},
      {"Where is Mount Everest", "Location"},        {"Who painted the Mona Lisa", "Human"},
      {"What city hosts the Louvre", "Location"},    {"Who invented the telephone", "Human"}};
  std::string lines;
  for (const auto& [question, kind] : asked)
    lines += json{{"dataset", "trec"},
                  {"context", kExamples},
                  {"input", std::string("Question: ") + question + "?\nType:"},
                  {"answers", {kind}},
                  {"all_classes", {"Location", "Human"}}}
                 .dump() +
             "\n";
  return lines;
}

/// Prompts in the layouts of others, each with an answer that begins for the model.
std::string others_questions() {
  const std::pair<const char*, const char*> asked[] = {{"Who wrote Hamlet", "Human"},
                                                       {"Where is Mount Everest", "Location"}};
  std::string lines;
  for (const auto& [question, kind] : asked) {
    const std::string text = str("Question: ", question, "?");
    for (const json& line :
         {json{{"input", kExamples + text}, {"outputs", {kind}}, {"answer_prefix", "\nType:"}},
          json{{"context", str(kExamples, kind, "\n")},
               {"question", text},
               {"answer_prefix", "Type:"},
               {"answer", kind},
               {"max_new_tokens", 4}},
          json{{"context", kExamples},
               {"id", question},
               {"multi_turns",
                {{{"input", text + "\nType:"}, {"answer", kind}},
                 {{"input", "Question: Who was Homer?\nType:"}, {"answer", {"Human", "Poet"}}}}}}})
      lines += line.dump() + "\n";
  }
  return lines;
}

/// Transcripts of an assistant that has called a function before.
std::string transcripts() {
  std::string lines;
  for (const char* city : {"Oslo", "Lima", "Cairo"}) {
    const auto said = [](const char* who, const std::string& what) {
      return json{{"role", who}, {"content", what}};
    };
    const std::string question = str("What is the weather in ", city, "?");
    const json call = {
        {"role", "assistant"},
        {"content", ""},
        {"tool_calls", json::array({{{"id", "call00001"},
                                     {"type", "function"},
                                     {"function",
                                      {{"name", "find_weather"},
                                       {"arguments", json{{"city", city}}.dump()}}}}})}};
    json messages = json::array();
    for (int i = 0; i < 3; ++i)
      for (const json& one : {said("user", question), call, said("tool", "It rains."),
                              said("assistant", "It rains there.")})
        messages.push_back(one);
    messages.push_back(said("user", question));
    messages.push_back(call);
    const json tool = {{"type", "function"},
                       {"function",
                        {{"name", "find_weather"},
                         {"parameters",
                          {{"type", "object"},
                           {"properties", {{"city", {{"type", "string"}}}}},
                           {"required", json::array({"city"})}}}}}};
    lines += json{{"messages", messages}, {"tools", json::array({tool})}}.dump() + "\n";
  }
  return lines;
}

class Scoring : public testing::Test {
 protected:
  std::string path(const std::string& name) const { return (folder_.path() / name).string(); }
  /// Profiles, calibrates and evaluates the prompts, and expects one full score of the last two.
  void expect_one_score(const std::string& lines, const std::vector<std::string>& more) const {
    const std::string prompts = folder_.write("prompts.jsonl", lines).string();
    const Finished profiled = run_kvatlas({"profile", "--model", demo_model(), "--prompts", prompts,
                                           "--capture", "scores,kept", "--budgets", "24",
                                           "--windows", "8", "--lags", "16", "-o", path("p.h5")});
    ASSERT_EQ(profiled.status, 0) << profiled.err;
    const auto with_more = [&](std::vector<std::string> words) {
      words.insert(words.end(), more.begin(), more.end());
      return run_kvatlas(words);
    };
    const Finished done = with_more({"calibrate", "dynamickv", "--model", demo_model(), "-p",
                                     path("p.h5"), "--window", "8", "--budget", "24", "--budgets",
                                     "24", "--force", "-o", path("policy.json")});
    ASSERT_EQ(done.status, 0) << done.err;
    EXPECT_THAT(done.err, testing::Not(HasSubstr("schema")));
    const Finished evaluated = with_more(
        {"evaluate", "--model", demo_model(), "--prompts", prompts, "--time-steps", "0", "--json"});
    ASSERT_EQ(evaluated.status, 0) << evaluated.err;
    const double score =
        json::parse(evaluated.out).at("policies").at(0).at("score").at("mean").get<double>();
    EXPECT_GT(score, 0.2);
    EXPECT_DOUBLE_EQ(full_score("policy.json"), score);
  }
  double full_score(const std::string& document) const {
    const auto read = calibrate::read_document(path(document));
    return read.sections.at("dynamickv").at("measured").at("full").at("mean");
  }
  TemporaryFolder folder_;
};

TEST_F(Scoring, CalibrateScoresClassesAsEvaluateDoes) {
  expect_one_score(questions(), {"--new", "8"});
}

TEST_F(Scoring, CalibrateScoresOthersFilesAsEvaluateDoes) {
  expect_one_score(others_questions(), {});
}

TEST_F(Scoring, CalibrateScoresCallsOfFunctionsAsEvaluateDoes) {
  expect_one_score(transcripts(), {"--new", "24"});
}

TEST_F(Scoring, CallsOfFunctionsAreShownPartByPart) {
  const std::vector<std::string> words = {"evaluate",
                                          "--model",
                                          demo_model(),
                                          "--task",
                                          "tools:functions=2,notes=2,turns=2",
                                          "--seeds",
                                          "1",
                                          "--lengths",
                                          "700",
                                          "--depths",
                                          "0.5",
                                          "--policy",
                                          "snapkv:budget=64",
                                          "--conversation",
                                          "--new",
                                          "24",
                                          "--time-steps",
                                          "0",
                                          "--chat",
                                          "auto"};
  const Finished table = run_kvatlas(words);
  ASSERT_EQ(table.status, 0) << table.err;
  EXPECT_THAT(table.out, HasSubstr("Calls of functions, part by part"));
  EXPECT_THAT(table.out, HasSubstr("Score by turn"));
  const std::string prompts = folder_.write("calls.jsonl", transcripts()).string();
  const Finished done = run_kvatlas({"evaluate", "--model", demo_model(), "--prompts", prompts,
                                     "--new", "24", "--time-steps", "0", "--json"});
  ASSERT_EQ(done.status, 0) << done.err;
  const json full = json::parse(done.out).at("policies").at(0);
  double sum = 0;
  for (const char* part : {"call", "name", "valid", "arguments"})
    sum += full.at("calls").at(part).at("mean").get<double>();
  EXPECT_DOUBLE_EQ(full.at("score").at("mean").get<double>(), sum / 4);
  EXPECT_GT(sum, 2);
}

TEST_F(Scoring, AFileOfLongBenchIsJudgedDatasetByDataset) {
  const auto prompts = source_folder() / "tests/unit/data/longbench.jsonl";
  const Finished done =
      run_kvatlas({"evaluate", "--model", demo_model(), "--prompts", prompts.string(), "--policy",
                   "streaming:recent=16", "--new", "4", "--time-steps", "0", "--json"});
  ASSERT_EQ(done.status, 0) << done.err;
  EXPECT_THAT(done.err, testing::Not(HasSubstr("members not read")));
  const auto policies = json::parse(done.out).at("policies");
  ASSERT_EQ(policies.size(), 2u);
  for (const auto& policy : policies) {
    EXPECT_EQ(policy.at("samples"), 12);
    const auto& tasks = policy.at("tasks");
    ASSERT_EQ(tasks.size(), 12u);
    for (const char* dataset : {"narrativeqa", "multifieldqa_zh", "trec", "passage_count", "lcc"}) {
      EXPECT_EQ(tasks.at(dataset).at("samples"), 1) << dataset;
      EXPECT_TRUE(tasks.at(dataset).at("score").at("mean").is_number()) << dataset;
    }
  }
}

TEST_F(Scoring, OthersPromptsEndWithTheirAnswersBeginningAndAskForTheirTokens) {
  const std::string prompts =
      folder_
          .write("file.jsonl",
                 R"({"context":"A B ","question":"C?","answer_prefix":"It is","answer":"x",)"
                 R"("max_new_tokens":3,"note":1})"
                 "\n"
                 R"({"text":"A B C?\nIt is","answers":["x"]})"
                 "\n")
          .string();
  const Finished done = run_kvatlas({"evaluate", "--model", demo_model(), "--prompts", prompts,
                                     "--time-steps", "0", "--ignore-eos", "--generations"});
  ASSERT_EQ(done.status, 0) << done.err;
  EXPECT_THAT(done.err, HasSubstr("file.jsonl: members not read: note\n"));
  std::istringstream lines(done.out);
  std::string first, second;
  std::getline(lines, first);
  std::getline(lines, second);
  const auto three = json::parse(first).at("tokens").get<std::vector<int>>();
  auto usual = json::parse(second).at("tokens").get<std::vector<int>>();
  EXPECT_EQ(three.size(), 3u);
  ASSERT_EQ(usual.size(), 32u);
  usual.resize(3);
  EXPECT_EQ(three, usual);  // both prompts are the same tokens

  // In a chat format the answer's beginning stands behind the assistant's header.
  const auto chatted = [&](const std::string& lines_of, const std::string& chat) {
    const Finished run =
        run_kvatlas({"evaluate", "--model", demo_model(), "--chat", chat, "--prompts",
                     folder_.write("chat.jsonl", lines_of).string(), "--new", "4", "--time-steps",
                     "0", "--ignore-eos", "--generations"});
    EXPECT_EQ(run.status, 0) << run.err;
    return json::parse(run.out.substr(0, run.out.find('\n'))).at("cache_lengths").at(0).get<int>();
  };
  const std::string bare = R"({"input":"A B C?","outputs":["x"]})";
  const std::string begun = R"({"input":"A B C?","outputs":["x"],"answer_prefix":" B B"})";
  EXPECT_EQ(chatted(begun, "chatml"), chatted(bare, "chatml") + 2);
  EXPECT_EQ(chatted(begun, "none"), chatted(bare, "none") + 2);
}

TEST_F(Scoring, TheCacheIsCutBehindTheContextThatTurnsShare) {
  std::string book = "Once upon a time there was a cat.";
  for (int i = 0; i < 5; ++i) book += " The cat sat on the mat and looked at the moon.";
  const json line = {{"id", "book"},
                     {"context", book},
                     {"multi_turns",
                      {{{"input", "Who sat on the mat?"}, {"answer", "cat"}},
                       {{"input", "What did it look at, as the book says?"}, {"answer", "moon"}}}}};
  const std::string prompts = folder_.write("turns.jsonl", line.dump()).string();
  const auto kept = [&](const std::vector<std::string>& more) {
    std::vector<std::string> words = {"evaluate", "--model",       demo_model(), "--prompts",
                                      prompts,    "--new",         "4",          "--time-steps",
                                      "0",        "--generations", "--positions"};
    words.insert(words.end(), more.begin(), more.end());
    const Finished done = run_kvatlas(words);
    EXPECT_EQ(done.status, 0) << done.err;
    std::vector<json> positions;
    std::istringstream lines(done.out);
    for (std::string one; std::getline(lines, one);)
      if (const json judged = json::parse(one); judged.at("policy") != "full")
        positions.push_back(judged.at("positions"));
    return positions;
  };
  const std::vector<std::string> window = {"--policy", "window:recent=8", "--compress-context"};
  const auto whole = kept(window);
  ASSERT_EQ(whole.size(), 2u);
  EXPECT_EQ(whole[0], whole[1]);
  // Where a prompt has lost its middle, the cut still lies behind the context: the last eight of
  // its tokens stay, and not those before the gap.
  auto cut_short = window;
  cut_short.insert(cut_short.end(), {"--max-tokens", "40"});
  const auto shorter = kept(cut_short);
  ASSERT_EQ(shorter.size(), 2u);
  for (const auto& positions : shorter) EXPECT_GT(positions.at(0).at(0).at(0).at(0).get<int>(), 12);

  // Of a conversation it is cut behind the first question, by which TOVA chooses, for all turns.
  const std::vector<std::string> tova = {"--policy", "tova:budget=24"};
  const auto apart = kept(tova);
  EXPECT_NE(apart.at(0), apart.at(1));
  for (const char* chat : {"none", "chatml"}) {
    auto words = tova;
    words.insert(words.end(), {"--conversation", "--chat", chat});
    const auto turns = kept(words);
    ASSERT_EQ(turns.size(), 2u);
    EXPECT_EQ(turns[0], turns[1]) << chat;
    if (std::string(chat) == "none") {
      EXPECT_EQ(turns[0], apart[0]);
    }
  }
}

TEST_F(Scoring, GeneratedPromptsOutsideAChatAreNoted) {
  const std::string note = "note: the model has a chat template, and generated prompts are put to";
  const std::string own = folder_.write("own.jsonl", questions()).string();
  const auto said = [](std::vector<std::string> words, const std::vector<std::string>& more) {
    words.insert(words.end(), {"--model", demo_model()});
    words.insert(words.end(), more.begin(), more.end());
    const Finished done = run_kvatlas(words);
    EXPECT_EQ(done.status, 0) << done.err;
    return done.err;
  };
  const std::vector<std::string> needles = {"--task",   "needle", "--lengths", "300",
                                            "--depths", "0.5",    "--new",     "1"};
  std::vector<std::string> profile = {"profile", "-o", path("p.h5"), "--seeds", "5"};
  std::vector<std::string> evaluate = {"evaluate", "--time-steps", "0"};
  for (auto* words : {&profile, &evaluate}) {
    const std::vector<std::string> plan =
        words == &profile ? std::vector<std::string>{"--dry-run"} : std::vector<std::string>{};
    const auto with = [&](std::vector<std::string> more) {
      more.insert(more.end(), plan.begin(), plan.end());
      return said(*words, more);
    };
    auto chatted = needles;
    chatted.insert(chatted.end(), {"--chat", "auto"});
    EXPECT_THAT(with(needles), HasSubstr(note));
    EXPECT_THAT(with(chatted), Not(HasSubstr(note)));
    EXPECT_THAT(with({"--prompts", own, "--new", "1"}), Not(HasSubstr(note)));
  }
  // A search makes prompts where it takes a profile; that of a profile has them from there.
  const std::vector<std::string> search = {"calibrate",   "auto", "--context", "300",
                                           "--kv-saving", "0.2",  "--dry-run"};
  const std::string taken = said(search, {"--task", "needle", "--depths", "0.5", "--seeds", "5"});
  EXPECT_THAT(taken, HasSubstr(note));
  EXPECT_EQ(taken.find(note), taken.rfind(note));
  said(profile, needles);
  EXPECT_THAT(said(search, {"-p", path("p.h5")}), Not(HasSubstr(note)));
}

TEST_F(Scoring, GeneratedPromptsAreOfAsManyTextsAsDepths) {
  const auto planned = [&](const std::vector<std::string>& more) {
    std::vector<std::string> words = {"profile",    "--model",   demo_model(), "--task",
                                      "needle",     "--lengths", "300",        "-o",
                                      path("p.h5"), "--dry-run"};
    words.insert(words.end(), more.begin(), more.end());
    return run_kvatlas(words).err;
  };
  EXPECT_THAT(planned({}), HasSubstr("25 samples of 5 texts of "));
  EXPECT_THAT(planned({"--depths", "0.2,0.8"}), HasSubstr("4 samples of 2 texts of "));
  EXPECT_THAT(planned({"--depths", "0.5", "--seeds", "3"}), HasSubstr("3 samples of "));
}

}  // namespace
}  // namespace kvatlas
