// SPDX-License-Identifier: Apache-2.0
// One prompt asked of one server, and its answer.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "calibrate/endpoint/http.hpp"
#include "calibrate/endpoint/server.hpp"
#include "calibrate/rules/top_k_bounds.hpp"

namespace kvatlas::calibrate {

/// A prompt as it is sent: the tokens where the server takes them, else the text, or in chats the
/// messages.
struct ServedPrompt {
  std::string id;
  std::vector<std::int64_t> tokens;  // empty without a tokenizer
  std::string text;
  std::vector<std::string> messages;  // by the user and the model in turns
  /// Of a prompt that asks for calls of functions: these, and what is sent in chats instead of the
  /// messages above. Lists in OpenAI's form, as JSON; else empty.
  std::string tools, tool_messages;
  std::int64_t max_new = 16;
};

struct AskOptions {
  std::string model;
  std::int64_t top = 0;              // log-probabilities of so many tokens
  bool ignore_end = false;           // go on behind an end-of-sequence token
  bool avoid_cache = true;           // where a request can say so
  std::string salt;                  // of this request alone
  std::vector<std::int64_t> forced;  // tokens that the answer is made of, and
  std::string forced_text;           // their text
};

/// The body of the request. Error(unsupported), with the server's name, for what it cannot be
/// asked.
nlohmann::ordered_json request_of(const ServerTable& server, const ServedPrompt& prompt,
                                  const AskOptions& options);

/// One generated token, with the most probable ones at its place.
struct ServedToken {
  std::int64_t id = 0;
  std::vector<TopToken> top;
};

struct ServedAnswer {
  std::string text;  // calls of functions that a chat gives apart stand at its end, a line each
  std::vector<std::int64_t> ids;  // of the generated tokens, where the server gives them
  std::vector<ServedToken> tokens;
  std::string finish;
  std::optional<std::int64_t> prompt_tokens, new_tokens, cached_tokens;
  double first_seconds = 0, last_seconds = 0;  // of events with tokens, from the request's start
  int retries = 0;
  /// A status other than 200, and what the server says of it; empty if it answered.
  long status = 200;
  std::string problem;
  bool failed() const { return !problem.empty(); }
};

/// Takes an answer's events as they come.
class ServedAnswerReader {
 public:
  explicit ServedAnswerReader(const ServerTable& server) : server_(server) {}
  /// Error(unreadable) for what is no answer of this server; Error(resource) for an error that it
  /// reports after it began.
  void take(std::string_view event, double seconds);
  /// Error(unreadable) if the answer has no end, or lacks what was asked for.
  ServedAnswer finish(const ServedPrompt& prompt, const AskOptions& options);

 private:
  void take_tops(const nlohmann::json& event);
  void take_calls(const nlohmann::json& event);

  const ServerTable& server_;
  ServedAnswer answer_;
  struct Call {
    std::string name, arguments;  // which come in pieces
  };
  std::vector<Call> calls_;
  bool first_ = true;
};

/// What an error's body says, in at most 300 printable characters.
std::string error_text(const ServerTable& server, std::string_view body);

/// A server that is there: what it is, and what it serves.
struct ServerFacts {
  std::string kind;                 // a name of servers()
  std::string model;                // the one that is asked
  std::vector<std::string> models;  // all that it lists
  std::string version;
  std::int64_t longest = 0;  // tokens of prompt and answer; 0: it does not say
};
/// Asks the server what it is; `kind` "auto" finds it out. Error(usage) if it cannot be found out,
/// or serves several models of which none is named; Error(resource) if it does not answer.
ServerFacts look_at(HttpConnection& connection, const std::string& kind, const std::string& model);

/// Sends one prompt and reads the answer. Answers with a status that says no come back with a
/// problem; Error(resource) if there is no answer, or none that can be read.
ServedAnswer ask(HttpConnection& connection, const ServerTable& server, const ServedPrompt& prompt,
                 const AskOptions& options, const ApiKey& key);

}  // namespace kvatlas::calibrate
