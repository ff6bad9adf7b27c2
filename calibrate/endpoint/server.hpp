// SPDX-License-Identifier: Apache-2.0
// What each kind of server is asked and how it answers: one table for each, in a file of its name.
// A place in a request or an answer is a JSON pointer ("/usage/prompt_tokens"); an empty one says
// that the server has nothing like that.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "calibrate/endpoint/sse.hpp"

namespace kvatlas::calibrate {

/// How log-probabilities of generated tokens come back.
enum class TopForm {
  none,
  by_id_text,  // OpenAI's lists, whose tokens are written "token_id:12" (vLLM)
  objects,     // objects with id, logprob and top_logprobs (llama.cpp)
  triples,     // lists of [log-probability, id, text] (SGLang)
  each_event,  // one token an event, with top_tokens beside it (TGI)
};

/// What its metrics are called.
struct ServerMetrics {
  std::string_view path = {};  // empty: it publishes none
  // All that it can hold, in bytes, blocks or tokens: a value, or a label of it, or else another.
  std::string_view capacity = {}, capacity_label = {}, capacity_label_else = {};
  std::string_view format = {}, format_label = {};  // what a value is stored as
  std::string_view held_share = {};                 // of the capacity, that is in use
  std::string_view held = {};                       // the same as a number
  std::string_view running = {}, waiting = {}, preempted = {};
};

struct ServerTable {
  std::string_view name = {}, title = {};
  std::string_view owner =
      {};                      // what /v1/models calls the owner of its models; empty: says nothing
  std::string_view path = {};  // where prompts go
  EventReader::Form form = EventReader::Form::events;
  bool takes_ids = false;
  bool cumulative = false;      // each event holds all that was generated
  std::string_view fixed = {};  // what every request says, as JSON

  // Of a request.
  std::string_view prompt = {}, most_tokens = {}, model = {}, ignore_end = {};
  std::string_view top = {}, salt = {}, context = {}, forced = {};
  bool forced_as_grammar = false;  // by a grammar of the text, not by tokens
  std::int64_t most_top = 0;
  TopForm top_form = TopForm::none;
  std::string_view no_top = {};  // why most_top is 0
  // Of an answer.
  std::string_view text = {}, calls = {}, ids = {}, finish = {};
  std::string_view prompt_tokens = {}, new_tokens = {}, cached_tokens = {}, tops = {};
  std::string_view chosen = {};  // of triples: those of the tokens that were chosen
  // Where it says what it is, and how many tokens a prompt and its answer may have.
  std::string_view about = {}, version = {}, longest = {};
  std::vector<std::string_view> errors =
      {};  // where an error says what it is, the first that is there
  ServerMetrics metrics = {};
};

/// All of them, the one for any server that speaks OpenAI's language last.
std::span<const ServerTable* const> servers();
/// Error(usage) if there is none of that name.
const ServerTable& server_named(std::string_view name);
/// The same server, asked by messages at /v1/chat/completions: its own template writes the prompt.
ServerTable chat_of(const ServerTable& server);

// One a file.
extern const ServerTable kVllm, kSglang, kLlamaCpp, kTgi, kTensorRtLlm, kOllama, kOpenAi;

}  // namespace kvatlas::calibrate
