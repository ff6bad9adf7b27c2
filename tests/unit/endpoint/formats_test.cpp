// SPDX-License-Identifier: Apache-2.0
// What servers send: events, metrics, and the answers of each kind of server.
#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "base/json_text.hpp"
#include "calibrate/endpoint/ask.hpp"
#include "calibrate/endpoint/prometheus.hpp"
#include "calibrate/endpoint/sse.hpp"
#include "tests/support/error_of.hpp"

namespace {

using namespace kvatlas;
using namespace kvatlas::calibrate;
using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing_support::error_of;

std::vector<std::string> events_of(std::string_view text, std::size_t piece,
                                   EventReader::Form form = EventReader::Form::events) {
  EventReader reader(form);
  std::vector<std::string> out;
  const auto take = [&](std::string_view data) { out.emplace_back(data); };
  for (std::size_t at = 0; at < text.size(); at += piece) reader.push(text.substr(at, piece), take);
  reader.finish(take);
  return out;
}

TEST(Events, ComeInPiecesOfAnySize) {
  const std::string text =
      "\xEF\xBB\xBF: hello\r\ndata: one\r\n\r\nevent: x\rdata:two\rdata: lines\r\rid\n\n"
      "data\n\ndata: cut";
  for (std::size_t piece = 1; piece <= text.size(); ++piece)
    EXPECT_THAT(events_of(text, piece), ElementsAre("one", "two\nlines", "")) << piece;
  EXPECT_THAT(events_of("{\"a\":1}\n\n{\"b\":2}", 3, EventReader::Form::lines),
              ElementsAre("{\"a\":1}", "{\"b\":2}"));
}

TEST(Events, LongLinesAreRefused) {
  EXPECT_THAT(error_of([] { events_of("data: " + std::string(kMostLineBytes, 'x'), 65536); }),
              HasSubstr("1 MiB"));
  std::string many;
  for (int i = 0; i < 3000; ++i) many += "data: " + std::string(1000, 'x') + "\n";
  EXPECT_THAT(error_of([&] { events_of(many, 65536); }), HasSubstr("1 MiB"));
}

TEST(Metrics, AreReadAsFarAsTheyAreSome) {
  const auto samples = parse_metrics(
      "# HELP vllm:x words\n# TYPE vllm:x gauge\n"
      "vllm:kv_cache_usage_perc{engine=\"0\",model_name=\"a \\\"b\\\"\\n\\\\\"} 0.25\r\n"
      "vllm:kv_cache_usage_perc{engine=\"1\",} 0.5 1395066363000\n"
      "vllm:cache_config_info{cache_dtype=\"auto\",num_gpu_blocks=\"512\"} 1.0\n"
      "up +Inf\n  spaced  3\n2bad 1\nbad{ 1\nbad{a=\"x} 1\nbad\nbad x\n\nlast NaN");
  ASSERT_EQ(samples.size(), 6u);
  EXPECT_EQ(samples[0].labels.at("model_name"), "a \"b\"\n\\");
  EXPECT_EQ(metric_sum(samples, "vllm:kv_cache_usage_perc"), 0.75);
  EXPECT_EQ(metric_sum(samples, "up"), std::nullopt);
  EXPECT_EQ(metric_sum(samples, "spaced"), 3);
  EXPECT_EQ(metric_label(samples, "vllm:cache_config_info", "num_gpu_blocks"), "512");
  EXPECT_EQ(metric_label(samples, "vllm:cache_config_info", "none"), "");
  EXPECT_THAT(parse_metrics(""), IsEmpty());
  EXPECT_THAT(error_of([] { parse_metrics(std::string(1'000'001, '\n')); }), HasSubstr("lines"));
}

ServedPrompt prompt_of(std::vector<std::int64_t> tokens, std::int64_t max_new = 8) {
  ServedPrompt prompt;
  prompt.id = "p";
  prompt.text = "text";
  prompt.messages = {"text"};
  prompt.tokens = std::move(tokens);
  prompt.max_new = max_new;
  return prompt;
}

TEST(Requests, SayWhatDecidesTheAnswer) {
  AskOptions options;
  options.model = "m";
  options.salt = "s";
  for (const ServerTable* server : servers()) {
    const json body = request_of(*server, prompt_of({1, 2, 3}), options);
    const std::string text = body.dump();
    EXPECT_TRUE(text.find("\"temperature\":0") != text.npos ||
                text.find("\"do_sample\":false") != text.npos)
        << server->name;
    EXPECT_EQ(text.find("[1,2,3]") != text.npos, server->takes_ids) << server->name;
    EXPECT_THAT(text, HasSubstr(":8")) << server->name;
    const json chat = request_of(chat_of(*server), prompt_of({}), options);
    EXPECT_EQ(chat.at("/messages/0/content"_json_pointer), "text");
  }
  options.top = 20;
  options.forced = {5, 6};
  const json vllm = request_of(kVllm, prompt_of({1}), options);
  EXPECT_EQ(vllm.at("logprobs"), 20);
  EXPECT_EQ(vllm.at("cache_salt"), "s");
  EXPECT_EQ(vllm.at("/vllm_xargs/kvatlas_forced"_json_pointer), json({5, 6}));
  EXPECT_THAT(error_of([&] { request_of(kOllama, prompt_of({1}), options); }),
              HasSubstr("Ollama cannot be asked for log-probabilities"));
  options.top = 0;
  EXPECT_THAT(error_of([&] { request_of(kTgi, prompt_of({1}), options); }),
              HasSubstr("TGI cannot be asked for an answer of given tokens"));
  EXPECT_EQ(request_of(kOllama, prompt_of({1, 2}), {}).at("/options/num_ctx"_json_pointer), 26);
  // trtllm-serve forbids what it does not know.
  const json trt = request_of(kTensorRtLlm, prompt_of({1}), {});
  for (const auto& [member, value] : trt.items())
    EXPECT_THAT((std::vector<std::string>{"temperature", "top_p", "repetition_penalty", "n", "seed",
                                          "stream", "stream_options", "prompt", "max_tokens"}),
                testing::Contains(member));
}

TEST(Requests, ChatsAreGivenFunctionsAsTheyAre) {
  ServedPrompt prompt = prompt_of({});
  prompt.tools = R"([{"type":"function","function":{"name":"find","parameters":{"z":1,"a":2}}}])";
  prompt.tool_messages = R"([{"role":"user","content":"U"},{"role":"tool","content":"R"}])";
  const std::string chat = request_of(chat_of(kVllm), prompt, {}).dump();
  EXPECT_THAT(chat, HasSubstr("\"tools\":" + prompt.tools));
  EXPECT_THAT(chat, HasSubstr("\"messages\":" + prompt.tool_messages));
  EXPECT_EQ(request_of(kVllm, prompt, {}).at("prompt"), "text");
}

TEST(Requests, LlamaCppIsForcedByAGrammar) {
  AskOptions options;
  options.forced = {1, 2};
  options.forced_text = "a\"b\\c\nd\x01 é";
  EXPECT_EQ(request_of(kLlamaCpp, prompt_of({1}), options).at("grammar"),
            R"(root ::= "a\"b\\c\x0Ad\x01 é")");
}

ServedAnswer answer_of(const ServerTable& server, const std::vector<std::string>& events,
                       std::int64_t prompt_tokens = 3, std::int64_t top = 0) {
  ServedAnswerReader reader(server);
  double at = 0;
  for (const auto& event : events) reader.take(event, at += 0.5);
  AskOptions options;
  options.top = top;
  return reader.finish(
      prompt_of(std::vector<std::int64_t>(static_cast<std::size_t>(prompt_tokens), 1)), options);
}

TEST(Answers, OfVllm) {
  const ServedAnswer answer = answer_of(
      kVllm,
      {R"({"choices":[{"index":0,"text":" a","token_ids":[7],"finish_reason":null,"logprobs":
          {"tokens":["token_id:7"],"token_logprobs":[-0.5],"top_logprobs":[{"token_id:7":-0.5,"token_id:9":-1.5}]}}]})",
       R"({"choices":[{"index":0,"text":"b","token_ids":[8,2],"finish_reason":"stop","logprobs":
          {"tokens":["token_id:8","token_id:2"],"top_logprobs":[{"token_id:8":-0.1},{"token_id:2":-0.2}]}}]})",
       R"({"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":2}}})",
       "[DONE]"},
      3, 2);
  EXPECT_EQ(answer.text, " ab");
  EXPECT_THAT(answer.ids, ElementsAre(7, 8, 2));
  ASSERT_EQ(answer.tokens.size(), 3u);
  EXPECT_EQ(answer.tokens[0].top.size(), 2u);
  EXPECT_EQ(answer.cached_tokens, 2);
  EXPECT_EQ(answer.first_seconds, 0.5);
  EXPECT_EQ(answer.last_seconds, 1.0);
}

TEST(Answers, OfSglang) {
  const ServedAnswer answer = answer_of(
      kSglang,
      {R"({"text":" a","output_ids":[7],"meta_info":{"finish_reason":null,"prompt_tokens":3,"completion_tokens":1,
          "output_token_logprobs":[[-0.5,7,null]],"output_top_logprobs":[[[-0.5,7,null],[-1.5,9,null]]]}})",
       R"({"text":" ab","output_ids":[7,8],"meta_info":{"finish_reason":{"type":"length"},"prompt_tokens":3,"completion_tokens":2,
          "output_token_logprobs":[[-0.5,7,null],[-0.1,8,null]],"output_top_logprobs":[[[-0.5,7,null]],[[-0.1,8,null]]]}})"},
      3, 2);
  EXPECT_EQ(answer.text, " ab");
  EXPECT_THAT(answer.ids, ElementsAre(7, 8));
  EXPECT_EQ(answer.tokens.size(), 2u);
  EXPECT_EQ(answer.finish, "length");
  // Pieces alone would be taken for everything.
  EXPECT_THAT(
      error_of([] {
        answer_of(
            kSglang,
            {R"({"text":"a","output_ids":[7],"meta_info":{"prompt_tokens":3}})",
             R"({"text":"b","output_ids":[8],"meta_info":{"finish_reason":{"type":"stop"},"prompt_tokens":3,"completion_tokens":3}})"});
      }),
      HasSubstr("all that was generated so far"));
}

TEST(Answers, OfTheOthers) {
  const ServedAnswer llama = answer_of(
      kLlamaCpp,
      {R"({"content":" a","tokens":[7],"stop":false,"completion_probabilities":[{"id":7,"logprob":-0.5,"top_logprobs":[{"id":7,"logprob":-0.5}]}]})",
       R"({"content":"","tokens":[],"stop":true,"stop_type":"limit","tokens_evaluated":3,"tokens_predicted":1})"});
  EXPECT_EQ(llama.text, " a");
  EXPECT_EQ(llama.tokens.size(), 1u);
  EXPECT_EQ(llama.prompt_tokens, 3);

  const ServedAnswer tgi = answer_of(
      kTgi,
      {R"({"index":1,"token":{"id":7,"text":" a","logprob":-0.5,"special":false},"top_tokens":[{"id":7,"text":" a","logprob":-0.5}],"generated_text":null,"details":null})",
       R"({"index":2,"token":{"id":2,"text":"</s>","logprob":-0.1,"special":true},"generated_text":" a","details":{"finish_reason":"eos_token","generated_tokens":2,"input_length":3}})"});
  EXPECT_EQ(tgi.text, " a");
  EXPECT_THAT(tgi.ids, ElementsAre(7, 2));

  const ServedAnswer ollama = answer_of(
      kOllama,
      {R"({"response":" a","done":false})",
       R"({"response":"","done":true,"done_reason":"stop","prompt_eval_count":3,"eval_count":2})"});
  EXPECT_EQ(ollama.text, " a");
  EXPECT_EQ(ollama.new_tokens, 2);

  const ServedAnswer chat = answer_of(
      chat_of(kVllm), {R"({"choices":[{"delta":{"role":"assistant","content":""}}]})",
                       R"({"choices":[{"delta":{"content":"hi"},"finish_reason":"stop"}]})",
                       R"({"choices":[],"usage":{"prompt_tokens":30,"completion_tokens":2}})"});
  EXPECT_EQ(chat.text, "hi");
}

TEST(Answers, CallsOfChatsComeInPieces) {
  const auto piece = [](const std::string& calls) {
    return R"({"choices":[{"delta":{"tool_calls":)" + calls + R"(},"finish_reason":null}]})";
  };
  const std::vector<std::string> end = {
      R"({"choices":[{"delta":{},"finish_reason":"tool_calls"}]})",
      R"({"choices":[],"usage":{"prompt_tokens":30,"completion_tokens":7}})"};
  const auto answered = [&](std::vector<std::string> events) {
    events.insert(events.end(), end.begin(), end.end());
    return answer_of(chat_of(kVllm), events);
  };
  const ServedAnswer two = answered(
      {piece(R"([{"index":0,"id":"c","function":{"name":"find","arguments":""}}])"),
       piece(R"([{"index":0,"function":{"arguments":"{\"a\""}}])"),
       piece(
           R"([{"index":0,"function":{"arguments":": 1}"}},{"index":1,"function":{"name":"s\"top"}}])")});
  EXPECT_EQ(two.text,
            "{\"name\": \"find\", \"arguments\": {\"a\": 1}}\n"
            "{\"name\": \"s\\\"top\", \"arguments\": {}}");
  EXPECT_EQ(two.finish, "tool_calls");
  EXPECT_EQ(two.first_seconds, 0.5);
  EXPECT_EQ(two.last_seconds, 1.5);
  // What is no JSON stays none.
  EXPECT_EQ(answered({piece(R"([{"function":{"name":"f","arguments":"{\"a"}}])")}).text,
            "{\"name\": \"f\", \"arguments\": {\"a}");
  EXPECT_THAT(error_of([&] { answered({piece(R"([{"index":64}])")}); }),
              HasSubstr("more than 64 calls"));
  EXPECT_THAT(error_of([&] { answered({piece("7")}); }), HasSubstr("no list of calls"));
}

TEST(Answers, OddOnesAreRefused) {
  const std::string end =
      R"({"choices":[{"text":"","finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":0}})";
  const auto refusal = [&](std::vector<std::string> events) {
    return error_of([&] { answer_of(kVllm, events, 3, 20); });
  };
  EXPECT_EQ(refusal({end}), "");
  EXPECT_THAT(refusal({}), HasSubstr("ends in its middle"));
  EXPECT_THAT(refusal({R"({"choices":[{"text":"a"}]})"}), HasSubstr("ends in its middle"));
  EXPECT_THAT(refusal({R"({"choices":[{"text":"","finish_reason":"stop"}]})"}),
              HasSubstr("how many tokens its prompt has"));
  EXPECT_THAT(
      refusal({R"({"choices":[{"text":"","finish_reason":"stop"}],"usage":{"prompt_tokens":2}})"}),
      HasSubstr("another prompt than was sent"));
  EXPECT_THAT(refusal({R"({"error":{"message":"out of \u001b[31mmemory","code":500}})"}),
              HasSubstr("broke off with"));
  EXPECT_THAT(
      refusal(
          {R"({"choices":[{"text":"a","token_ids":[7],"finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":1}})"}),
      HasSubstr("no log-probabilities came back"));
  EXPECT_THAT(
      refusal(
          {R"({"choices":[{"text":"a","token_ids":[1,2,3,4,5,6,7,8,9],"finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":9}})"}),
      HasSubstr("that were asked for came 9"));
  EXPECT_THAT(refusal({R"({"choices":[{"token_ids":[-1]}]})"}), HasSubstr("a token's id is -1"));
  EXPECT_THAT(refusal({R"({"choices":[{"token_ids":[1e30]}]})"}), HasSubstr("a token's id"));
  EXPECT_THAT(refusal({R"({"choices":[{"logprobs":{"tokens":["a"],"top_logprobs":[{"a":-1}]}}]})"}),
              HasSubstr("not its id"));
  EXPECT_THAT(
      refusal({R"({"choices":[{"logprobs":{"tokens":["token_id:1"],"top_logprobs":[]}}]})"}),
      HasSubstr("not as many"));
  EXPECT_THAT(
      refusal(
          {R"({"choices":[{"logprobs":{"tokens":["token_id:1"],"top_logprobs":[{"token_id:1":"x"}]}}]})"}),
      HasSubstr("a log-probability is"));
  EXPECT_NE(refusal({"[1,2]"}), "");
  EXPECT_NE(refusal({"{"}), "");
  EXPECT_NE(refusal({std::string(10000, '[')}), "");
}

TEST(Answers, ErrorsOfEachKindAreRead) {
  EXPECT_EQ(error_text(kVllm, R"({"error":{"message":"too long"}})"), "too long");
  EXPECT_EQ(error_text(kSglang, R"({"object":"error","message":"too long"})"), "too long");
  EXPECT_EQ(error_text(kTgi, R"({"error":"too long","error_type":"validation"})"), "too long");
  EXPECT_EQ(error_text(kOllama, "<html>\x1b[31m"), printable("<html>\x1b[31m", 300));
}

}  // namespace
