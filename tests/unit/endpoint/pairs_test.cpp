// SPDX-License-Identifier: Apache-2.0
// Two servers beside each other, and what their answers say.
#include "calibrate/endpoint/pairs.hpp"

#include <atomic>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "base/json_text.hpp"
#include "base/random.hpp"
#include "calibrate/endpoint/served_report.hpp"
#include "calibrate/rules/certainty.hpp"
#include "tests/support/error_of.hpp"
#include "tests/unit/endpoint/loopback_server.hpp"

namespace {

using namespace kvatlas;
using namespace kvatlas::calibrate;
using nlohmann::json;
using testing::HasSubstr;
using testing::Not;
using testing_support::error_of;
using testing_support::HttpReply;
using testing_support::HttpSeen;
using testing_support::LoopbackServer;

/// What a server answers to a prompt of tokens.
using Say = std::function<std::string(const json& request)>;

std::string event(const json& data) { return "data: " + data.dump() + "\n\n"; }

/// An answer of these tokens, as vLLM streams it.
std::string vllm_answer(std::size_t prompt_tokens, const std::vector<int>& tokens) {
  std::string out;
  for (const int token : tokens) {
    const std::string name = "token_id:" + std::to_string(token);
    out += event(
        {{"choices",
          {{{"text", " " + std::to_string(token)},
            {"token_ids", {token}},
            {"logprobs",
             {{"tokens", {name}}, {"top_logprobs", {{{name, -0.1}, {"token_id:99", -3.0}}}}}}}}}});
  }
  out += event({{"choices", {{{"text", ""}, {"finish_reason", "stop"}}}}});
  out +=
      event({{"choices", json::array()},
             {"usage", {{"prompt_tokens", prompt_tokens}, {"completion_tokens", tokens.size()}}}});
  return out + "data: [DONE]\n\n";
}

LoopbackServer::Handle as_vllm(Say say) {
  return [say = std::move(say)](const HttpSeen& request, const HttpReply& reply) {
    if (request.path == "/v1/models")
      return void(
          reply.whole(200, R"({"data":[{"id":"m","owned_by":"vllm","max_model_len":4096}]})"));
    if (request.path == "/version") return void(reply.whole(200, R"({"version":"0.33.0"})"));
    if (request.path == "/metrics")
      return void(reply.whole(200,
                              "vllm:cache_config_info{cache_dtype=\"auto\",kv_cache_memory_bytes="
                              "\"None\",kv_cache_size_tokens=\"100\"} 1\n"
                              "vllm:kv_cache_usage_perc 0.5\n"));
    const std::string said = say(parse_json(request.body));
    if (said.starts_with("status "))
      return void(
          reply.whole(std::stoi(said.substr(7)), R"({"error":{"message":"no such luck"}})"));
    if (said == "reset") return reply.reset();
    reply.whole(200, said, "Content-Type: text/event-stream\r\n");
  };
}

/// Answers with the first tokens of the prompt.
std::string echo(const json& request) {
  const auto& tokens = request.at("prompt");
  return vllm_answer(tokens.size(), {tokens[0].get<int>(), tokens[1].get<int>()});
}

std::vector<ServedPrompt> prompts_of(int count) {
  std::vector<ServedPrompt> out;
  for (int i = 0; i < count; ++i) {
    ServedPrompt& prompt = out.emplace_back();
    prompt.id = "prompt " + std::to_string(i);
    prompt.tokens = {i + 1, 50, 51};
    prompt.max_new = 8;
  }
  return out;
}

EndpointOptions options_of(const LoopbackServer& full, const LoopbackServer& compressed) {
  EndpointOptions options;
  options.full = full.url();
  options.url = compressed.url();
  options.top = 2;
  options.timeout = 20;
  return options;
}

void nothing(const ServedPrompt&) {}

TEST(ServedPairs, AreAskedAlike) {
  LoopbackServer full(as_vllm(echo)), compressed(as_vllm(echo));
  ServedPair pair(options_of(full, compressed));
  EXPECT_EQ(pair.full().facts.model, "m");
  EXPECT_EQ(pair.longest(), 4096);
  EXPECT_THAT(pair.compressed().name(), HasSubstr("vLLM 0.33.0 at http://127.0.0.1"));
  int told = 0;
  const auto pairs = pair.ask(prompts_of(10), 4, [&](const ServedPrompt&) { ++told; });
  EXPECT_EQ(told, 10);
  ASSERT_EQ(pairs.size(), 10u);
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    EXPECT_TRUE(pairs[i].same);
    EXPECT_EQ(pairs[i].full_text, " " + std::to_string(i + 1) + " 50");
    EXPECT_EQ(pairs[i].has_control, i < 4);
    EXPECT_EQ(pairs[i].control_same, i < 4);
    EXPECT_EQ(pairs[i].agreement->low, 1);
    EXPECT_EQ(pairs[i].places, 2);
    EXPECT_NEAR(pairs[i].divergences->tv_low, 0, 1e-12);
  }
  // Each request has a salt of its own, so that nothing comes from a prefix cache.
  std::set<std::string> salts;
  std::size_t asked = 0;
  for (const auto* server : {&full, &compressed})
    for (const auto& request : server->seen())
      if (request.path == "/v1/completions") {
        ++asked;
        salts.insert(parse_json(request.body).at("cache_salt"));
      }
  EXPECT_EQ(asked, 24u);
  EXPECT_EQ(salts.size(), asked);
}

TEST(ServedPairs, OneSidedFailuresCount) {
  LoopbackServer full(as_vllm([](const json& request) {
    return request.at("prompt")[0] == 1 ? "status 400" : echo(request);
  }));
  LoopbackServer compressed(as_vllm([](const json& request) {
    return request.at("prompt")[0] <= 2 ? "status 400" : echo(request);
  }));
  ServedPair pair(options_of(full, compressed));
  const auto pairs = pair.ask(prompts_of(3), 0, nothing);
  const std::vector<std::string> groups(3);
  const ServedFigures figures = figures_of(pairs, groups, false);
  EXPECT_EQ(figures.both_failed, 1u);
  EXPECT_EQ(figures.compressed_failed, 1u);
  EXPECT_EQ(figures.pairs, 1u);
  EXPECT_THAT(pairs[1].compressed_problem, HasSubstr("status 400: no such luck"));
}

TEST(ServedPairs, WhatIsNoMatterOfOnePromptEndsTheRun) {
  LoopbackServer full(as_vllm(echo));
  const auto trouble = [&](Say say) {
    LoopbackServer compressed(as_vllm(std::move(say)));
    ServedPair pair(options_of(full, compressed));
    return error_of([&] { pair.ask(prompts_of(2), 0, nothing); });
  };
  EXPECT_THAT(trouble([](const json&) { return "status 401"; }), HasSubstr("status 401"));
  EXPECT_THAT(trouble([](const json&) { return "data: {\"choices\""; }),
              HasSubstr("ends in its middle"));
  EXPECT_THAT(trouble([](const json&) {
                return event({{"error", {{"message", "late"}}}});
              }),
              HasSubstr("broke off with 'late'"));
  // It cuts prompts, or counts otherwise.
  EXPECT_THAT(trouble([](const json&) { return vllm_answer(2, {1}); }),
              HasSubstr("another prompt than was sent"));
}

TEST(ServedPairs, ServersOfDifferentFormsOrNoneAreRefused) {
  LoopbackServer full(as_vllm(echo));
  LoopbackServer ollama([](const HttpSeen& request, const HttpReply& reply) {
    if (request.path == "/v1/models")
      return void(reply.whole(200, R"({"data":[{"id":"m","owned_by":"library"}]})"));
    reply.whole(200, R"({"version":"1"})");
  });
  EXPECT_THAT(error_of([&] { ServedPair pair(options_of(full, ollama)); }),
              HasSubstr("take prompts in different forms"));
  LoopbackServer odd([](const HttpSeen&, const HttpReply& reply) { reply.whole(404, "what?"); });
  EXPECT_THAT(error_of([&] { ServedPair pair(options_of(full, odd)); }),
              HasSubstr("what serves there cannot be told"));
  LoopbackServer locked([](const HttpSeen&, const HttpReply& reply) { reply.whole(401, ""); });
  EXPECT_THAT(error_of([&] { ServedPair pair(options_of(full, locked)); }),
              HasSubstr("KVATLAS_API_KEY"));
  EndpointOptions wrong = options_of(full, full);
  wrong.model_names = "other";
  EXPECT_THAT(error_of([&] { ServedPair pair(wrong); }), HasSubstr("serves no model 'other'"));
  wrong = options_of(full, full);
  wrong.full.clear();
  EXPECT_THAT(error_of([&] { ServedPair pair(wrong); }), HasSubstr("two servers are compared"));
}

TEST(ServedPairs, ServersThatDieAreAskedNoMoreThanOnceForEachAnswer) {
  const auto path = std::filesystem::path(testing::TempDir()) / "answers.jsonl";
  std::filesystem::remove(path);
  LoopbackServer full(as_vllm(echo));
  std::atomic<int> left = 3;
  auto dying = std::make_unique<LoopbackServer>(
      as_vllm([&](const json& request) { return left-- > 0 ? echo(request) : "status 404"; }));
  const int port = dying->port();
  EndpointOptions options = options_of(full, *dying);
  options.journal = path.string();
  options.concurrency = 1;
  {
    ServedPair pair(options);
    EXPECT_EQ(pair.open_journal({{"version", "1"}}), 0u);
    EXPECT_THAT(error_of([&] { pair.ask(prompts_of(8), 0, nothing); }), HasSubstr("status 404"));
  }
  dying.reset();
  LoopbackServer back(as_vllm(echo), port);
  ServedPair again(options);
  const auto known = again.open_journal({{"version", "1"}});
  EXPECT_GE(known, 6u);
  const auto pairs = again.ask(prompts_of(8), 0, nothing);
  EXPECT_EQ(pairs.size(), 8u);
  for (const auto& pair : pairs) EXPECT_TRUE(pair.same);
  std::size_t asked = 0;
  for (const auto& request : back.seen()) asked += request.path == "/v1/completions";
  EXPECT_EQ(asked, 5u);
  // Another run is not gone on with.
  ServedPair other(options);
  EXPECT_THAT(error_of([&] {
                other.open_journal({{"version", "1"}});
              }),
              HasSubstr("being written by another process"));
}

TEST(ServedPairs, JournalsOfOtherRunsAreRefused) {
  const auto path = std::filesystem::path(testing::TempDir()) / "others.jsonl";
  std::filesystem::remove(path);
  LoopbackServer full(as_vllm(echo)), compressed(as_vllm(echo));
  EndpointOptions options = options_of(full, compressed);
  options.journal = path.string();
  { ServedPair(options).open_journal({{"seed", 1}}); }
  EXPECT_THAT(error_of([&] {
                ServedPair(options).open_journal({{"seed", 2}});
              }),
              HasSubstr("were run with seed 1, and now it is 2"));
  std::ofstream(path, std::ios::app) << "{\"side\":\"full\",\"prompt\":\"x\"}\n";
  EXPECT_THAT(error_of([&] {
                ServedPair(options).open_journal({{"seed", 1}});
              }),
              HasSubstr("no answer"));
}

TEST(ServedPairs, KeysAreNeitherPrintedNorKept) {
  const auto path = std::filesystem::path(testing::TempDir()) / "keys.jsonl";
  std::filesystem::remove(path);
  setenv("KVATLAS_TEST_KEY", "sk-very-secret", 1);
  const auto tells = [](const HttpSeen& request, const HttpReply& reply) {
    if (request.method == "GET") return as_vllm(echo)(request, reply);
    reply.whole(400, R"({"error":{"message":"bad key sk-very-secret"}})");
  };
  LoopbackServer full(tells), compressed(tells);
  EndpointOptions options = options_of(full, compressed);
  options.key_variable = "KVATLAS_TEST_KEY";
  options.journal = path.string();
  ServedPair pair(options);
  pair.open_journal({});
  const auto pairs = pair.ask(prompts_of(1), 0, nothing);
  EXPECT_THAT(pairs[0].full_problem, HasSubstr("bad key [key]"));
  std::ifstream file(path);
  const std::string kept{std::istreambuf_iterator<char>(file), {}};
  EXPECT_THAT(kept, HasSubstr("bad key [key]"));
  EXPECT_THAT(kept, Not(HasSubstr("sk-very-secret")));
}

TEST(ServedPairs, AnswersSurviveTheJournal) {
  ServedAnswer answer;
  answer.text = "a\xC3\xA9";
  answer.ids = {1, 2};
  answer.tokens = {{1, {{1, -0.25}, {9, -7.125}}}, {2, {}}};
  answer.finish = "length";
  answer.prompt_tokens = 5;
  answer.first_seconds = 0.125;
  const ServedAnswer back = answer_of_line(parse_json(answer_line(answer).dump()));
  EXPECT_EQ(answer_line(back), answer_line(answer));
  EXPECT_FALSE(back.failed());
  EXPECT_THAT(error_of([] { answer_of_line(json::array()); }), HasSubstr("no answer"));
}

TEST(ComparedAnswers, ForcedOnesAreComparedAtEachToken) {
  ServedAnswer full, free, forced;
  full.ids = {1, 2, 3, 4};
  free.ids = {1, 5};
  forced.ids = {1, 2, 3, 4};
  for (const std::int64_t id : full.ids) {
    full.tokens.push_back({id, {{id, -0.1}, {90, -3}}});
    forced.tokens.push_back({id, {{id, -0.1}, {90, -3}}});
  }
  forced.tokens[1].top = {{90, -0.1}, {2, -3}};
  forced.tokens[2].top = {{90, -0.7}, {3, -0.7}};  // a tie agrees
  const AskedPair compared = compare_answers(full, free, &forced, 2);
  EXPECT_EQ(compared.agreement->low, 0.75);
  EXPECT_EQ(compared.agreement->high, 0.75);
  EXPECT_EQ(compared.places, 4);
  const AskedPair freely = compare_answers(full, free, nullptr, 2);
  EXPECT_EQ(freely.agreement->low, 0.25);
  EXPECT_EQ(freely.agreement->high, 0.75);
  EXPECT_THAT(error_of([&] { compare_answers(full, free, &free, 2); }),
              HasSubstr("does not generate the tokens that it is given"));
}

TEST(Compared, ATextThatIsForcedMayBeMadeOfOtherTokens) {
  ServedAnswer full, forced;
  full.text = "abcd";
  full.ids = {1, 2, 3, 4};
  for (const std::int64_t id : full.ids) full.tokens.push_back({id, {{id, -0.1}, {90, -3}}});
  forced = full;
  const AskedPair alike = compare_answers(full, full, &forced, 2, true);
  EXPECT_EQ(alike.agreement->low, 1);
  EXPECT_EQ(alike.agreement->high, 1);
  // At the third place it writes "cd" as one token: what it thinks of token 3 is known, and of
  // token 4 nothing.
  forced.ids = {1, 2, 34};
  forced.tokens[1].top = {{90, -0.1}, {2, -3}};
  forced.tokens[2] = {34, {{3, -0.1}, {34, -3}}};
  forced.tokens.resize(3);
  const AskedPair parted = compare_answers(full, full, &forced, 2, true);
  EXPECT_EQ(parted.agreement->low, 0.5);
  EXPECT_EQ(parted.agreement->high, 0.75);
  EXPECT_EQ(parted.places, 3);
  forced.text = "abx";
  EXPECT_THAT(error_of([&] { compare_answers(full, full, &forced, 2, true); }),
              HasSubstr("does not generate the text that its grammar allows"));
}

/// A stand-in for llama.cpp's server: one token for each letter of what its grammar allows, or else
/// of what it says; it would rather begin each word with "x".
LoopbackServer::Handle as_llama_cpp(const std::string& says) {
  return [says](const HttpSeen& request, const HttpReply& reply) {
    if (request.path == "/v1/models")
      return void(reply.whole(200, R"({"data":[{"id":"m","owned_by":"llamacpp"}]})"));
    if (request.path == "/props") return void(reply.whole(200, R"({"build_info":"b7000"})"));
    const json asked = parse_json(request.body);
    const std::string grammar = asked.value("grammar", ""), root = "root ::= \"";
    const std::string said =
        grammar.empty() ? says : grammar.substr(root.size(), grammar.size() - root.size() - 1);
    std::string out;
    for (const char c : said) {
      const int best = says.find(c) == says.npos ? 'x' : c;
      out += event({{"content", std::string(1, c)},
                    {"tokens", {static_cast<int>(c)}},
                    {"stop", false},
                    {"completion_probabilities",
                     {{{"id", static_cast<int>(c)},
                       {"top_logprobs",
                        {{{"id", best}, {"logprob", -0.1}}, {{"id", 1}, {"logprob", -4}}}}}}}});
    }
    out += event({{"content", ""},
                  {"stop", true},
                  {"stop_type", grammar.empty() ? "eos" : "limit"},
                  {"tokens_evaluated", asked.at("prompt").size()},
                  {"tokens_predicted", said.size()}});
    reply.whole(200, out, "Content-Type: text/event-stream\r\n");
  };
}

TEST(ServedPairs, LlamaCppGeneratesTheFullServersAnswer) {
  LoopbackServer full(as_llama_cpp("abcd")), compressed(as_llama_cpp("abc"));
  EndpointOptions options = options_of(full, compressed);
  options.force_decode = true;
  ServedPair pair(options);
  const auto pairs = pair.ask(prompts_of(2), 0, nothing);
  ASSERT_EQ(pairs.size(), 2u);
  EXPECT_EQ(pairs[0].full_text, "abcd");
  EXPECT_EQ(pairs[0].compressed_text, "abc");
  EXPECT_EQ(pairs[0].agreement->low, 0.75);  // at "d" it would rather say "x"
  EXPECT_EQ(pairs[0].agreement->high, 0.75);
  EXPECT_EQ(pairs[0].places, 4);
}

TEST(DidItRun, IsSeenNotSeenOrNotKnown) {
  EXPECT_EQ(answer_sign(0, 0, 0, 0).seen, Seen::unknown);
  EXPECT_EQ(answer_sign(50, 0, 20, 0).seen, Seen::not_seen);
  EXPECT_THAT(answer_sign(50, 0, 20, 0).words, HasSubstr("fewer than 5.8 %"));
  EXPECT_EQ(answer_sign(50, 25, 20, 0).seen, Seen::seen);
  EXPECT_EQ(answer_sign(50, 25, 20, 9).seen, Seen::unknown);
  EXPECT_EQ(answer_sign(50, 25, 0, 0).seen, Seen::unknown);
  EXPECT_EQ(use_sign(100, 40).seen, Seen::seen);
  EXPECT_EQ(use_sign(100, 100).seen, Seen::not_seen);
  EXPECT_EQ(use_sign(std::nullopt, 100).seen, Seen::unknown);
  EXPECT_EQ(format_sign({.format = "auto"}, {.format = "fp8"}).seen, Seen::seen);
  EXPECT_EQ(format_sign({.format = "auto"}, {.format = "auto"}).seen, Seen::unknown);
  EXPECT_EQ(format_sign({}, {}).seen, Seen::unknown);
  LoopbackServer server(as_vllm(echo));
  ServedPair pair(options_of(server, server));
  ServerWatch watch(pair.full(), {});
  EXPECT_EQ(watch.now()->held, 50);
  EXPECT_EQ(watch.now()->format, "auto");
  EXPECT_EQ(watch.now()->unit, "kv_cache_size_tokens");
  std::optional<double> held;
  EXPECT_EQ(watch.load(prompts_of(2), held).tokens, 4);
}

// What is printed of 1000 made-up servers holds the truth in at least 95 % of all cases: loss,
// agreement, total variation and the control.
TEST(ServedFigures, CoverTheTruth) {
  constexpr int kServers = 1000, kPrompts = 40;
  Random random(7, "servers");
  const auto uniform = [&] { return random.share(); };
  int agreement = 0, variation = 0, ratio = 0;
  for (int s = 0; s < kServers; ++s) {
    const double part = uniform();  // how probable it is that a prompt's answers part
    const double true_tv = 0.3 * part, true_ratio = 0.5 + uniform();
    std::vector<AskedPair> pairs;
    for (int i = 0; i < kPrompts; ++i) {
      const bool parts = uniform() < part;
      AskedPair pair;
      // What was seen is a bound from each side of what is true of this prompt.
      const double truth = parts ? 0.5 : 1.0, gap = 0.2 * uniform();
      pair.agreement = AgreementBounds{truth - gap, std::min(1.0, truth + gap)};
      const double tv = parts ? 0.3 : 0.0;
      pair.divergences = DivergenceBounds{0, std::max(0.0, tv - gap), tv + gap, 0, 0.1};
      pair.first_token_ratio = true_ratio * std::exp(2 * (uniform() - 0.5));
      pairs.push_back(pair);
    }
    const std::vector<std::string> groups(kPrompts);
    const ServedFigures figures = figures_of(pairs, groups, false);
    const double true_agreement = 1 - 0.5 * part;
    agreement +=
        figures.agreement.low <= true_agreement && true_agreement <= figures.agreement.high;
    variation += figures.tv.low <= true_tv && true_tv <= figures.tv.high;
    ratio +=
        figures.first_token.ratio.low <= true_ratio && true_ratio <= figures.first_token.ratio.high;
  }
  EXPECT_GE(agreement, 950);
  EXPECT_GE(variation, 950);
  EXPECT_GE(ratio, 935);  // 95 % but for chance: an exact interval, not a wide one
}

}  // namespace
