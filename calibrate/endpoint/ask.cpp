// SPDX-License-Identifier: Apache-2.0
#include "calibrate/endpoint/ask.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/error.hpp"
#include "base/json_text.hpp"
#include "base/plain_text.hpp"

namespace kvatlas::calibrate {
namespace {

using nlohmann::json;

constexpr std::int64_t kLargestId = std::int64_t{1} << 31;
constexpr std::size_t kMostTokens = std::size_t{1} << 20;  // of one answer

json::json_pointer pointer(std::string_view place) {
  return json::json_pointer(std::string(place));
}

/// What stands at the place; null if nothing does.
const json& at_place(const json& value, std::string_view place) {
  static const json kNothing;
  if (place.empty()) return kNothing;
  const auto where = pointer(place);
  return value.contains(where) ? value.at(where) : kNothing;
}

std::string text_at(const json& value, std::string_view place) {
  const json& found = at_place(value, place);
  return found.is_string() ? found.get<std::string>() : std::string();
}

std::optional<std::int64_t> count_at(const json& value, std::string_view place) {
  const json& found = at_place(value, place);
  if (!found.is_number_integer() || found < 0 || found > kLargestId) return std::nullopt;
  return found.get<std::int64_t>();
}

std::int64_t token_id(const json& value) {
  if (!value.is_number_integer() || value < 0 || value >= kLargestId)
    fail(ErrorCode::unreadable, "a token's id is ", printable(json_text(value), 40));
  return value.get<std::int64_t>();
}

double log_prob(const json& value) {
  if (!value.is_number())
    fail(ErrorCode::unreadable, "a log-probability is ", printable(json_text(value), 40));
  return value.get<double>();
}

/// "token_id:12"
std::int64_t id_of_text(std::string_view text) {
  constexpr std::string_view kStart = "token_id:";
  std::int64_t id = -1;
  if (text.starts_with(kStart)) {
    const auto* const end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data() + kStart.size(), end, id);
    if (error != std::errc() || stop != end) id = -1;
  }
  if (id < 0 || id >= kLargestId)
    fail(ErrorCode::unreadable, "log-probabilities name the token ", quoted(std::string(text), 40),
         ", not its id");
  return id;
}

const json& list_of(const json& value, const char* what) {
  if (!value.is_array() || value.size() > kMostTokens)
    fail(ErrorCode::unreadable, "no list of ", what);
  return value;
}

std::vector<ServedToken> by_id_text(const json& lists) {
  std::vector<ServedToken> out;
  const json& tokens = list_of(at_place(lists, "/tokens"), "tokens with log-probabilities");
  const json& tops = list_of(at_place(lists, "/top_logprobs"), "log-probabilities");
  if (tokens.size() != tops.size())
    fail(ErrorCode::unreadable, "not as many lists of log-probabilities as tokens");
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (!tokens[i].is_string()) fail(ErrorCode::unreadable, "a token is no text");
    ServedToken& token = out.emplace_back();
    token.id = id_of_text(tokens[i].get_ref<const std::string&>());
    if (!tops[i].is_object()) fail(ErrorCode::unreadable, "no log-probabilities of a token");
    for (const auto& [text, value] : tops[i].items())
      token.top.push_back({id_of_text(text), log_prob(value)});
  }
  return out;
}

ServedToken object_token(const json& value, std::string_view tops) {
  ServedToken token;
  token.id = token_id(at_place(value, "/id"));
  for (const auto& one : list_of(at_place(value, tops), "log-probabilities"))
    token.top.push_back({token_id(at_place(one, "/id")), log_prob(at_place(one, "/logprob"))});
  return token;
}

std::vector<ServedToken> triples(const json& tops, const json& chosen) {
  std::vector<ServedToken> out;
  const auto triple = [](const json& value) {
    if (!value.is_array() || value.size() < 2)
      fail(ErrorCode::unreadable, "no pair of log-probability and id");
    return TopToken{token_id(value[1]), log_prob(value[0])};
  };
  list_of(tops, "log-probabilities");
  list_of(chosen, "tokens with log-probabilities");
  if (tops.size() != chosen.size())
    fail(ErrorCode::unreadable, "not as many lists of log-probabilities as tokens");
  for (std::size_t i = 0; i < tops.size(); ++i) {
    ServedToken& token = out.emplace_back();
    token.id = triple(chosen[i]).id;
    for (const auto& one : list_of(tops[i], "log-probabilities")) token.top.push_back(triple(one));
  }
  return out;
}

/// A grammar in GBNF that nothing but the text meets.
std::string grammar_of(std::string_view text) {
  constexpr std::string_view kHex = "0123456789ABCDEF";
  std::string literal;
  for (const char c : text) {
    if (static_cast<unsigned char>(c) < 32) {
      literal += str("\\x", kHex[c / 16], kHex[c % 16]);
      continue;
    }
    if (c == '"' || c == '\\') literal += '\\';
    literal += c;
  }
  return str("root ::= \"", literal, '"');
}

[[noreturn]] void cannot(const ServerTable& server, const auto&... what) {
  fail(ErrorCode::unsupported, server.title, " cannot be asked ", what...);
}

}  // namespace

nlohmann::ordered_json request_of(const ServerTable& server, const ServedPrompt& prompt,
                                  const AskOptions& options) {
  using ordered = nlohmann::ordered_json;
  ordered body = ordered::parse(server.fixed);
  const auto set = [&](std::string_view place, ordered value) {
    body[pointer(place)] = std::move(value);
  };
  if (server.prompt == "/messages" && !prompt.tools.empty()) {
    set(server.prompt, ordered::parse(prompt.tool_messages));
    set("/tools", ordered::parse(prompt.tools));
  } else if (server.prompt == "/messages") {
    ordered messages = ordered::array();
    for (const auto& text : prompt.messages)
      messages.push_back(
          {{"role", messages.size() % 2 == 0 ? "user" : "assistant"}, {"content", text}});
    set(server.prompt, std::move(messages));
  } else if (server.takes_ids && !prompt.tokens.empty()) {
    set(server.prompt, prompt.tokens);
  } else if (server.name == "sglang") {
    set("/text", prompt.text);  // its ids have a member of their own
  } else {
    set(server.prompt, prompt.text);
  }
  set(server.most_tokens, prompt.max_new);
  if (!server.model.empty() && !options.model.empty()) set(server.model, options.model);
  if (!server.context.empty() && !prompt.tokens.empty())
    set(server.context, static_cast<std::int64_t>(prompt.tokens.size()) + prompt.max_new + 16);
  if (options.ignore_end) {
    if (server.ignore_end.empty()) cannot(server, "to go on behind the end of an answer");
    set(server.ignore_end, true);
  }
  if (options.top > 0) {
    if (server.top.empty()) cannot(server, "for log-probabilities: ", server.no_top);
    set(server.top, std::min(options.top, server.most_top));
    if (server.top_form == TopForm::triples) set("/return_logprob", true);
  }
  if (options.avoid_cache && !server.salt.empty()) set(server.salt, options.salt);
  if (!options.forced.empty()) {
    if (server.forced.empty()) cannot(server, "for an answer of given tokens");
    if (server.forced_as_grammar)
      set(server.forced, grammar_of(options.forced_text));
    else
      set(server.forced, options.forced);
  }
  return body;
}

std::string error_text(const ServerTable& server, std::string_view body) {
  try {
    const json said = parse_json(body);
    for (const auto place : server.errors)
      if (const std::string text = text_at(said, place); !text.empty()) return printable(text, 300);
  } catch (const Error&) {
  }
  return printable(body, 300);
}

void ServedAnswerReader::take(std::string_view text, double seconds) {
  if (text == "[DONE]") return;
  const json event = parse_json(text);
  if (!event.is_object()) fail(ErrorCode::unreadable, "an event is no object");
  // Some say what went wrong after they have begun with status 200.
  if (const json& error = at_place(event, "/error"); !error.is_null())
    fail(ErrorCode::resource, "it broke off with ", quoted(error_text(server_, text), 300));
  const auto size = [&] {
    std::size_t sum = answer_.ids.size() + answer_.text.size();
    for (const Call& call : calls_) sum += call.name.size() + call.arguments.size();
    return sum;
  };
  const std::size_t size_before = size();
  if (server_.top_form == TopForm::each_event) {
    if (const json& token = at_place(event, "/token"); !token.is_null()) {
      const auto id = token_id(at_place(token, "/id"));
      answer_.ids.push_back(id);
      if (at_place(token, "/special") != true) answer_.text += text_at(token, "/text");
      if (const json& tops = at_place(event, "/top_tokens"); tops.is_array()) {
        json with = {{"id", id}, {"top", tops}};
        answer_.tokens.push_back(object_token(with, "/top"));
      }
    }
  } else {
    const std::string piece = text_at(event, server_.text);
    if (server_.cumulative && !piece.empty()) answer_.text = piece;
    if (!server_.cumulative) answer_.text += piece;
    if (const json& ids = at_place(event, server_.ids); ids.is_array()) {
      list_of(ids, "tokens");
      if (server_.cumulative) answer_.ids.clear();
      for (const auto& id : ids) answer_.ids.push_back(token_id(id));
    }
    take_tops(event);
    take_calls(event);
  }
  if (answer_.ids.size() > kMostTokens)
    fail(ErrorCode::unreadable, "more tokens than were asked for");
  if (size() > size_before) {
    if (first_) answer_.first_seconds = seconds;
    first_ = false;
    answer_.last_seconds = seconds;
  }
  if (const std::string finish = text_at(event, server_.finish);
      !finish.empty() && finish != "none")
    answer_.finish = finish;
  const auto keep = [&](std::optional<std::int64_t>& to, std::string_view place) {
    if (const auto found = count_at(event, place)) to = found;
  };
  keep(answer_.prompt_tokens, server_.prompt_tokens);
  keep(answer_.new_tokens, server_.new_tokens);
  keep(answer_.cached_tokens, server_.cached_tokens);
}

void ServedAnswerReader::take_tops(const json& event) {
  const json& tops = at_place(event, server_.tops);
  if (tops.is_null()) return;
  std::vector<ServedToken> found;
  switch (server_.top_form) {
    case TopForm::by_id_text:
      found = by_id_text(tops);
      break;
    case TopForm::objects:
      for (const auto& one : list_of(tops, "tokens"))
        found.push_back(object_token(one, "/top_logprobs"));
      break;
    case TopForm::triples:
      found = triples(tops, at_place(event, server_.chosen));
      break;
    case TopForm::none:
    case TopForm::each_event:
      return;
  }
  if (server_.cumulative) answer_.tokens.clear();
  answer_.tokens.insert(answer_.tokens.end(), std::make_move_iterator(found.begin()),
                        std::make_move_iterator(found.end()));
  if (answer_.tokens.size() > kMostTokens)
    fail(ErrorCode::unreadable, "more tokens than were asked for");
}

void ServedAnswerReader::take_calls(const json& event) {
  constexpr std::size_t kMost = 64;
  const json& pieces = at_place(event, server_.calls);
  if (pieces.is_null()) return;
  for (const auto& piece : list_of(pieces, "calls")) {
    const auto number = count_at(piece, "/index").value_or(0);
    const auto at = static_cast<std::size_t>(number);
    if (at >= kMost) fail(ErrorCode::unreadable, "an answer makes more than ", kMost, " calls");
    if (calls_.size() <= at) calls_.resize(at + 1);
    calls_[at].name += text_at(piece, "/function/name");
    calls_[at].arguments += text_at(piece, "/function/arguments");
  }
}

ServedAnswer ServedAnswerReader::finish(const ServedPrompt& prompt, const AskOptions& options) {
  if (answer_.finish.empty())
    fail(ErrorCode::unreadable, "the answer ends in its middle, with no reason for its end");
  if (!answer_.prompt_tokens)
    fail(ErrorCode::unreadable, "the answer does not say how many tokens its prompt has");
  const auto sent = static_cast<std::int64_t>(prompt.tokens.size());
  if (server_.takes_ids && sent > 0 && *answer_.prompt_tokens != sent)
    fail(ErrorCode::unreadable, "of a prompt of ", sent, " tokens the server counts ",
         *answer_.prompt_tokens, ": it reads another prompt than was sent");
  const auto count = static_cast<std::int64_t>(answer_.ids.size());
  if (std::max(count, answer_.new_tokens.value_or(0)) > prompt.max_new)
    fail(ErrorCode::unreadable, "of at most ", prompt.max_new, " tokens that were asked for came ",
         std::max(count, answer_.new_tokens.value_or(0)));
  const bool gives_ids = !server_.ids.empty() || server_.top_form == TopForm::each_event;
  // The token that ends an answer is counted by all of them and given by some.
  if (gives_ids && answer_.new_tokens && std::abs(*answer_.new_tokens - count) > 1)
    fail(ErrorCode::unreadable, "of ", *answer_.new_tokens, " tokens ", count, " came back: ",
         server_.cumulative ? "events are to hold all that was generated so far"
                            : "the server is older or newer than the one known");
  if (options.top > 0 && answer_.tokens.empty() && count > 0)
    fail(ErrorCode::unreadable, "no log-probabilities came back, which were asked for");
  // As models write them, and what is no JSON stays none.
  for (const Call& call : calls_)
    answer_.text +=
        str(answer_.text.empty() ? "" : "\n", R"({"name": )", json_text(json(call.name)),
            R"(, "arguments": )", call.arguments.empty() ? "{}" : call.arguments, '}');
  return std::move(answer_);
}

ServedAnswer ask(HttpConnection& connection, const ServerTable& server, const ServedPrompt& prompt,
                 const AskOptions& options, const ApiKey& key) {
  HttpConnection::Request request;
  request.path = server.path;
  request.body = json_text(request_of(server, prompt, options));
  std::optional<ServedAnswerReader> reader;
  EventReader events(server.form);
  std::chrono::steady_clock::time_point start;
  std::optional<Error> trouble;
  const auto take_event = [&](std::string_view event) {
    reader->take(event,
                 std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  };
  request.begin = [&] {
    reader.emplace(server);
    events = EventReader(server.form);
    start = std::chrono::steady_clock::now();
  };
  request.take = [&](std::string_view bytes) {
    try {
      events.push(bytes, take_event);
      return true;
    } catch (const Error& error) {
      trouble = error;
      return false;
    }
  };
  const HttpAnswer got = connection.send(request);
  if (trouble) fail(ErrorCode::resource, key.redacted(trouble->what()));
  if (!got.trouble.empty()) fail(ErrorCode::resource, got.trouble);
  ServedAnswer answer;
  if (got.status != 200) {
    answer.status = got.status;
    answer.problem = str("status ", got.status, ": ", key.redacted(error_text(server, got.body)));
  } else {
    try {
      events.finish(take_event);
      answer = reader->finish(prompt, options);
    } catch (const Error& error) {
      fail(ErrorCode::resource, key.redacted(error.what()));
    }
  }
  answer.retries = got.retries;
  return answer;
}

namespace {

/// A JSON document that the server gives at a path; null if it has none there.
json document_at(HttpConnection& connection, const std::string& path) {
  HttpConnection::Request request;
  request.path = path;
  const HttpAnswer got = connection.send(request);
  if (!got.trouble.empty()) fail(ErrorCode::resource, got.trouble);
  if (got.status == 401 || got.status == 403)
    fail(
        ErrorCode::usage, "the server wants a key (status ", got.status,
        "): put it into KVATLAS_API_KEY, and that of the full server into KVATLAS_AGAINST_API_KEY");
  if (got.status != 200) return {};
  try {
    return parse_json(got.body);
  } catch (const Error&) {
    return {};
  }
}

}  // namespace

ServerFacts look_at(HttpConnection& connection, const std::string& kind, const std::string& model) {
  ServerFacts facts;
  facts.kind = kind;
  const json listed = document_at(connection, "/v1/models");
  std::string owner;
  if (const json& data = at_place(listed, "/data"); data.is_array() && data.size() <= 10000)
    for (const auto& one : data) {
      facts.models.push_back(text_at(one, "/id"));
      if (owner.empty()) owner = text_at(one, "/owned_by");
      if (model.empty() || facts.models.back() == model)
        if (const auto longest = count_at(one, "/max_model_len"); longest && facts.longest == 0)
          facts.longest = *longest;
    }
  if (kind == "auto") {
    facts.kind.clear();
    for (const ServerTable* server : servers())
      if (!server->owner.empty() && server->owner == owner) facts.kind = server->name;
    // TGI names nobody as the owner of its models.
    if (facts.kind.empty() &&
        !at_place(document_at(connection, std::string(kTgi.about)), kTgi.longest).is_null())
      facts.kind = kTgi.name;
    if (facts.kind.empty())
      fail(ErrorCode::usage, "what serves there cannot be told: say it with --server (",
           join(servers(), ", ", [](const ServerTable* server) { return server->name; }), ')');
  }
  const ServerTable& server = server_named(facts.kind);
  if (!server.about.empty()) {
    const json about = document_at(connection, std::string(server.about));
    facts.version = printable(text_at(about, server.version), 100);
    if (facts.longest == 0) facts.longest = count_at(about, server.longest).value_or(0);
  }
  facts.model = model;
  if (model.empty() && facts.models.size() == 1) facts.model = facts.models.front();
  if (!model.empty() && !facts.models.empty() &&
      std::find(facts.models.begin(), facts.models.end(), model) == facts.models.end())
    fail(ErrorCode::usage, "it serves no model ", quoted(model, 100), ", but ",
         printable(join(facts.models, ", "), 300));
  if (facts.model.empty() && !server.model.empty())
    fail(ErrorCode::usage, facts.models.empty() ? "it names no model" : "it serves several models",
         ": say with --model-name which one is meant",
         facts.models.empty() ? "" : str(" (", printable(join(facts.models, ", "), 300), ')'));
  return facts;
}

}  // namespace kvatlas::calibrate
