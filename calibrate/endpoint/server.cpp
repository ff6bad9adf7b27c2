// SPDX-License-Identifier: Apache-2.0
#include "calibrate/endpoint/server.hpp"

#include <algorithm>
#include <array>

#include "base/error.hpp"
#include "base/plain_text.hpp"

namespace kvatlas::calibrate {

// What servers that speak OpenAI's language share, and nothing else.
const ServerTable kOpenAi = {
    .name = "openai",
    .title = "a server of OpenAI's form",
    .path = "/v1/completions",
    .fixed = R"({"temperature": 0, "top_p": 1, "n": 1, "seed": 0, "stream": true,
                 "stream_options": {"include_usage": true}})",
    .prompt = "/prompt",
    .most_tokens = "/max_tokens",
    .model = "/model",
    .no_top = "what its log-probabilities hold is not known",
    .text = "/choices/0/text",
    .finish = "/choices/0/finish_reason",
    .prompt_tokens = "/usage/prompt_tokens",
    .new_tokens = "/usage/completion_tokens",
    .cached_tokens = "/usage/prompt_tokens_details/cached_tokens",
    .errors = {"/error/message", "/message", "/error"},
};

std::span<const ServerTable* const> servers() {
  static constexpr std::array<const ServerTable*, 7> kAll = {
      &kVllm, &kSglang, &kLlamaCpp, &kTgi, &kTensorRtLlm, &kOllama, &kOpenAi};
  return kAll;
}

const ServerTable& server_named(std::string_view name) {
  for (const ServerTable* server : servers())
    if (server->name == name) return *server;
  fail(ErrorCode::usage, quoted(std::string(name)), " is no kind of server: it is auto, ",
       join(servers(), ", ", [](const ServerTable* server) { return server->name; }));
}

ServerTable chat_of(const ServerTable& server) {
  ServerTable chat = kOpenAi;
  chat.name = server.name;
  chat.title = server.title;
  chat.path = "/v1/chat/completions";
  chat.prompt = "/messages";
  chat.text = "/choices/0/delta/content";
  chat.calls = "/choices/0/delta/tool_calls";
  chat.no_top = "log-probabilities are asked for where kvatlas writes the prompt, not in chats";
  chat.errors = server.errors;
  chat.metrics = server.metrics;
  // Of OpenAI's members these may be asked for wherever a server takes them with prompts.
  if (server.path == "/v1/completions") {
    chat.salt = server.salt;
    chat.ignore_end = server.ignore_end;
  }
  return chat;
}

}  // namespace kvatlas::calibrate
