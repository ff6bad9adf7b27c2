// SPDX-License-Identifier: Apache-2.0
#include "calibrate/endpoint/pairs.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <exception>
#include <random>
#include <thread>

#include "base/error.hpp"
#include "base/hash.hpp"
#include "base/json_text.hpp"
#include "base/options.hpp"
#include "base/plain_text.hpp"

namespace kvatlas::calibrate {
namespace {

using nlohmann::json;

constexpr LineJournal::Kind kJournal{"kvatlas.answers/1", "answers",
                                     "name another --journal, or remove this one"};
constexpr std::size_t kFull = 0, kCompressed = 1;

ServedSide open_side(const EndpointOptions& options, std::size_t side) {
  ServedSide out;
  const bool full = side == kFull;
  out.place.url = in_context(full ? "--full" : "--endpoint",
                             [&] { return parse_server_url(full ? options.full : options.url); });
  out.place.key = ApiKey::from_environment(!options.key_variable.empty() ? options.key_variable
                                           : full                        ? "KVATLAS_AGAINST_API_KEY"
                                                                         : "KVATLAS_API_KEY");
  out.place.ca_file = options.ca_file;
  out.place.seconds = options.timeout;
  out.place.key_over_http = options.key_over_http;
  const std::size_t comma = options.model_names.find(',');
  std::string model = options.model_names.substr(0, comma);
  if (full && comma != std::string::npos) model = options.model_names.substr(comma + 1);
  HttpConnection connection(out.place);
  out.facts = in_context(printable(out.place.url.text, 200),
                         [&] { return look_at(connection, options.server, model); });
  out.server = server_named(out.facts.kind);
  if (options.api == "chat") out.server = chat_of(out.server);
  if (options.api == "completions" && out.server.path != "/v1/completions") {
    const ServerTable own = out.server;
    out.server = kOpenAi;
    out.server.title = own.title;
    out.server.metrics = own.metrics;
  }
  return out;
}

std::string prompt_key(const ServedPrompt& prompt, std::int64_t max_new) {
  Fnv1a hash;
  for (const auto token : prompt.tokens) hash.add(static_cast<std::uint64_t>(token));
  hash.add(prompt.text);
  for (const auto& message : prompt.messages) {
    hash.add(std::uint64_t{message.size()});
    hash.add(message);
  }
  hash.add(prompt.tools);
  hash.add(prompt.tool_messages);
  hash.add(static_cast<std::uint64_t>(max_new));
  return hash.hex();
}

double token_seconds(const ServedAnswer& answer) {
  const auto count = answer.new_tokens.value_or(static_cast<std::int64_t>(answer.ids.size()));
  return count < 2 ? 0
                   : (answer.last_seconds - answer.first_seconds) / static_cast<double>(count - 1);
}

std::int64_t token_count(const ServedAnswer& answer) {
  return answer.new_tokens.value_or(static_cast<std::int64_t>(answer.ids.size()));
}

/// Whether the token has the highest log-probability of those listed; ties agree.
bool is_highest(const ServedToken& at, std::int64_t token) {
  double own = -INFINITY, highest = -INFINITY;
  for (const auto& [id, log_prob] : at.top) {
    highest = std::max(highest, log_prob);
    if (id == token) own = log_prob;
  }
  return own >= highest && own > -INFINITY;
}

DivergenceBounds mean_of(std::span<const DivergenceBounds> bounds) {
  DivergenceBounds mean{0, 0, 0, 0, 0};
  for (const auto& one : bounds) {
    mean.kl_low += one.kl_low;
    mean.tv_low += one.tv_low;
    mean.tv_high += one.tv_high;
    mean.js_low += one.js_low;
    mean.js_high += one.js_high;
  }
  const auto count = static_cast<double>(bounds.size());
  for (double* value : {&mean.kl_low, &mean.tv_low, &mean.tv_high, &mean.js_low, &mean.js_high})
    *value /= count;
  return mean;
}

}  // namespace

std::string ServedSide::name() const {
  return str(server.title, facts.version.empty() ? "" : " " + facts.version, " at ",
             printable(place.url.text, 200));
}

AskedPair compare_answers(const ServedAnswer& full, const ServedAnswer& compressed,
                          const ServedAnswer* forced, std::size_t top, bool by_text) {
  AskedPair pair;
  pair.full_text = full.text;
  pair.compressed_text = compressed.text;
  pair.full_problem = full.problem;
  pair.compressed_problem = compressed.problem;
  if (full.failed() || compressed.failed()) return pair;
  pair.full_cut = full.finish == "length" || full.finish == "limit";
  pair.compressed_cut = compressed.finish == "length" || compressed.finish == "limit";
  pair.full_tokens = token_count(full);
  pair.compressed_tokens = token_count(compressed);
  pair.cached_tokens = full.cached_tokens.value_or(0) + compressed.cached_tokens.value_or(0);
  pair.same = full.text == compressed.text && full.ids == compressed.ids;
  const ServedAnswer& along = forced ? *forced : compressed;
  // At these places, and the one behind them, both saw the same tokens before.
  const auto same = static_cast<std::size_t>(
      std::mismatch(full.ids.begin(), full.ids.end(), along.ids.begin(), along.ids.end()).first -
      full.ids.begin());
  if (!full.ids.empty() && forced) {
    // What came back has to be what was asked for, so far as it goes.
    if (by_text ? !full.text.starts_with(forced->text) : forced->ids != full.ids)
      fail(ErrorCode::resource, "the server does not generate the ",
           by_text ? "text that its grammar allows"
                   : "tokens that it is given (the logits processor of kvatlas_vllm has to run "
                     "there)",
           ": leave --force-decode out");
    const std::size_t count = std::min({same + 1, forced->tokens.size(), full.ids.size()});
    std::size_t highest = 0;
    for (std::size_t i = 0; i < count; ++i) highest += is_highest(forced->tokens[i], full.ids[i]);
    // Behind the first other token of the same text nothing is known.
    const auto share = [&](std::size_t of) {
      return static_cast<double>(of) / static_cast<double>(by_text ? full.ids.size() : count);
    };
    if (count > 0)
      pair.agreement =
          AgreementBounds{share(highest), share(highest + (by_text ? full.ids.size() - count : 0))};
  } else if (!full.ids.empty()) {
    pair.agreement = prefix_agreement(full.ids, compressed.ids);
  }
  const std::size_t places = std::min({same + 1, full.tokens.size(), along.tokens.size()});
  std::vector<DivergenceBounds> bounds;
  for (std::size_t i = 0; i < places; ++i)
    bounds.push_back(divergence_bounds(top_tokens(full.tokens[i].top, top),
                                       top_tokens(along.tokens[i].top, top)));
  pair.places = static_cast<std::int64_t>(places);
  if (!bounds.empty()) pair.divergences = mean_of(bounds);
  pair.full_first_seconds = full.first_seconds;
  pair.full_token_seconds = token_seconds(full);
  pair.compressed_first_seconds = compressed.first_seconds;
  pair.compressed_token_seconds = token_seconds(compressed);
  if (full.retries + compressed.retries == 0) {
    if (full.first_seconds > 0 && compressed.first_seconds > 0)
      pair.first_token_ratio = compressed.first_seconds / full.first_seconds;
    if (pair.full_token_seconds > 0 && pair.compressed_token_seconds > 0)
      pair.per_token_ratio = pair.compressed_token_seconds / pair.full_token_seconds;
  }
  return pair;
}

json answer_line(const ServedAnswer& answer) {
  json line = {{"text", answer.text},         {"ids", answer.ids},
               {"finish", answer.finish},     {"first", answer.first_seconds},
               {"last", answer.last_seconds}, {"retries", answer.retries}};
  const auto keep = [&](const char* name, const std::optional<std::int64_t>& value) {
    if (value) line[name] = *value;
  };
  keep("prompt_tokens", answer.prompt_tokens);
  keep("new_tokens", answer.new_tokens);
  keep("cached_tokens", answer.cached_tokens);
  if (answer.failed()) line.update({{"status", answer.status}, {"problem", answer.problem}});
  if (!answer.tokens.empty()) {
    json& tokens = line["tokens"] = json::array();
    for (const auto& token : answer.tokens) {
      json top = json::array();
      for (const auto& [id, log_prob] : token.top) top.push_back({id, log_prob});
      tokens.push_back({token.id, std::move(top)});
    }
  }
  return line;
}

ServedAnswer answer_of_line(const json& line) {
  try {
    ServedAnswer answer;
    line.at("text").get_to(answer.text);
    line.at("ids").get_to(answer.ids);
    line.at("finish").get_to(answer.finish);
    line.at("first").get_to(answer.first_seconds);
    line.at("last").get_to(answer.last_seconds);
    line.at("retries").get_to(answer.retries);
    answer.status = line.value("status", 200L);
    answer.problem = line.value("problem", "");
    const auto take = [&](const char* name, std::optional<std::int64_t>& value) {
      if (line.contains(name)) value = line.at(name).get<std::int64_t>();
    };
    take("prompt_tokens", answer.prompt_tokens);
    take("new_tokens", answer.new_tokens);
    take("cached_tokens", answer.cached_tokens);
    if (line.contains("tokens"))
      for (const auto& token : line.at("tokens")) {
        ServedToken& kept = answer.tokens.emplace_back();
        token.at(0).get_to(kept.id);
        for (const auto& top : token.at(1))
          kept.top.push_back({top.at(0).get<std::int64_t>(), top.at(1).get<double>()});
      }
    return answer;
  } catch (const json::exception& error) {
    fail(ErrorCode::unreadable, "no answer: ", json_complaint(error));
  }
}

ServedPair::ServedPair(const EndpointOptions& options) : options_(options) {
  if (options_.url.empty() || options_.full.empty())
    fail(ErrorCode::usage,
         "two servers are compared: the one that is judged (--endpoint) and the one with the full "
         "cache (--full)");
  for (const std::size_t side : {kFull, kCompressed}) sides_[side] = open_side(options_, side);
  const auto& a = full().server;
  const auto& b = compressed().server;
  if ((a.prompt == "/messages") != (b.prompt == "/messages") || a.takes_ids != b.takes_ids)
    fail(ErrorCode::usage, full().name(), " and ", compressed().name(),
         " take prompts in different forms: --api chat, or --api completions, asks both alike");
  for (const auto& side : sides_) {
    if (options_.force_decode && side.server.forced.empty() && &side == &sides_[kCompressed])
      fail(ErrorCode::unsupported, side.server.title,
           " cannot be made to generate given tokens: without --force-decode the common beginning "
           "of both answers is compared");
  }
  top_ = std::min({options_.top, a.most_top, b.most_top});
  std::random_device random;
  salt_ = str("kvatlas-", random(), '-', random(), '-');
}

ServedPair::~ServedPair() = default;

bool ServedPair::takes_ids() const { return full().server.takes_ids; }
bool ServedPair::is_chat() const { return full().server.prompt == "/messages"; }

std::int64_t ServedPair::longest() const {
  const std::int64_t a = full().facts.longest, b = compressed().facts.longest;
  return a > 0 && b > 0 ? std::min(a, b) : std::max(a, b);
}

std::vector<std::string> ServedPair::notes() const {
  std::vector<std::string> out;
  for (const auto& side : sides_) {
    if (options_.prefix_cache == "avoid" && side.server.salt.empty() &&
        side.server.name != kLlamaCpp.name)
      out.push_back(str("a request cannot tell ", side.server.title,
                        " to leave its prefix cache alone: switch it off where it is started, or "
                        "what is cached may be judged instead of what is cut"));
    if (top_ == 0 && options_.top > 0 && side.server.most_top == 0)
      out.push_back(
          str("nothing is said of divergences: ", side.server.title, ": ", side.server.no_top));
  }
  return out;
}

std::size_t ServedPair::open_journal(json settings) {
  if (options_.journal.empty()) return 0;
  for (const std::size_t side : {kFull, kCompressed})
    settings[side == kFull ? "full" : "endpoint"] = {{"url", sides_[side].place.url.text},
                                                     {"server", sides_[side].server.name},
                                                     {"api", sides_[side].server.path},
                                                     {"version", sides_[side].facts.version},
                                                     {"model", sides_[side].facts.model}};
  settings["top"] = top_;
  settings["prefix_cache"] = options_.prefix_cache;
  journal_ = std::make_unique<LineJournal>(
      options_.journal, kJournal, settings, LineJournal::Open::resume, [&](const json& line) {
        if (!line.is_object() || !line.contains("side") || !line["side"].is_string() ||
            !line.contains("prompt") || !line["prompt"].is_string())
          fail(ErrorCode::unreadable, "no answer");
        known_[{line["side"], line["prompt"]}] = answer_of_line(line);
      });
  return known_.size();
}

ServedAnswer ServedPair::answer_of(HttpConnection& connection, std::size_t side, const char* role,
                                   const ServedPrompt& prompt, AskOptions options) {
  const std::pair<std::string, std::string> key{role, prompt_key(prompt, prompt.max_new)};
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = known_.find(key); found != known_.end()) return found->second;
    options.salt = salt_ + std::to_string(++asked_);
  }
  const ServedSide& of = sides_[side];
  options.model = of.facts.model;
  options.top = top_;
  options.avoid_cache = options_.prefix_cache == "avoid";
  ServedAnswer answer = in_context(str(of.name(), ", ", printable(prompt.id)), [&] {
    return calibrate::ask(connection, of.server, prompt, options, of.place.key);
  });
  // A wrong key or name is no matter of this prompt.
  if (answer.status == 401 || answer.status == 403 || answer.status == 404)
    fail(ErrorCode::usage, of.name(), ": ", answer.problem);
  if (journal_) {
    json line = answer_line(answer);
    line.update({{"side", key.first}, {"prompt", key.second}});
    const std::lock_guard lock(mutex_);
    journal_->append(json_text(line) + '\n');
  }
  return answer;
}

AskedPair ServedPair::ask_one(std::array<std::unique_ptr<HttpConnection>, 2>& connections,
                              const ServedPrompt& prompt, bool full_first, bool control) {
  std::array<ServedAnswer, 2> answers;
  for (const std::size_t side :
       full_first ? std::array{kFull, kCompressed} : std::array{kCompressed, kFull})
    answers[side] =
        answer_of(*connections[side], side, side == kFull ? "full" : "compressed", prompt, {});
  const auto& [full, compressed] = answers;
  std::optional<ServedAnswer> forced, again;
  const bool both = !full.failed() && !compressed.failed();
  if (both && full.prompt_tokens != compressed.prompt_tokens)
    fail(ErrorCode::resource, printable(prompt.id), ": the prompt has ", *full.prompt_tokens,
         " tokens on the full server and ", *compressed.prompt_tokens,
         " on the other: they do not read the same prompt (one cuts it, or their templates "
         "differ)");
  if (both && options_.force_decode && !full.ids.empty()) {
    AskOptions ask_for;
    ask_for.forced = full.ids;
    ask_for.forced_text = full.text;
    ServedPrompt as_long = prompt;
    as_long.max_new = static_cast<std::int64_t>(full.ids.size());
    forced = answer_of(*connections[kCompressed], kCompressed, "forced", as_long, ask_for);
    if (forced->failed())
      fail(ErrorCode::resource, sides_[kCompressed].name(), ": ", forced->problem);
  }
  if (control && !full.failed())
    again = answer_of(*connections[kFull], kFull, "control", prompt, {});
  AskedPair pair =
      compare_answers(full, compressed, forced ? &*forced : nullptr, static_cast<std::size_t>(top_),
                      sides_[kCompressed].server.forced_as_grammar);
  if (again && !again->failed()) {
    pair.has_control = true;
    pair.control_text = again->text;
    pair.control_same = again->text == full.text && again->ids == full.ids;
  }
  return pair;
}

std::vector<AskedPair> ServedPair::ask(std::span<const ServedPrompt> prompts, std::size_t control,
                                       const std::function<void(const ServedPrompt&)>& done) {
  std::vector<AskedPair> out(prompts.size());
  std::atomic<std::size_t> next{0};
  std::exception_ptr first;
  const auto work = [&] {
    try {
      std::array<std::unique_ptr<HttpConnection>, 2> connections;
      for (const std::size_t side : {kFull, kCompressed})
        connections[side] = std::make_unique<HttpConnection>(sides_[side].place);
      for (std::size_t i = 0; (i = next++) < prompts.size();) {
        out[i] = ask_one(connections, prompts[i], i % 2 == 0, i < control);
        const std::lock_guard lock(mutex_);
        done(prompts[i]);
      }
    } catch (...) {
      const std::lock_guard lock(mutex_);
      if (!first) first = std::current_exception();
      next = prompts.size();  // the others end what they have begun
    }
  };
  std::vector<std::thread> threads;
  const auto count = std::min<std::size_t>(options_.concurrency, prompts.size());
  for (std::size_t i = 0; i < count; ++i) threads.emplace_back(work);
  for (auto& thread : threads) thread.join();
  if (first) std::rethrow_exception(first);
  return out;
}

void add_endpoint_options(CLI::App& command, EndpointOptions& o) {
  command.option_defaults()->group("Servers");
  add_option(
      command, "--endpoint", o.url, "URL",
      "judge what this server answers, instead of a policy on a model here: http://HOST:PORT "
      "of vLLM, SGLang, llama.cpp, TGI, TensorRT-LLM, Ollama or another of OpenAI's form");
  add_option(command, "--full", o.full, "URL", "the server with the full cache beside it");
  add_option(command, "--model-name", o.model_names, "NAME[,NAME2]",
             "what the servers call the model; NAME2 is the full server's")
      ->default_str("the one that they serve");
  add_option(
      command, "--tokenizer", o.tokenizer, "DIR",
      "folder or GGUF file with the model's tokenizer: prompts are made with it, and sent as "
      "tokens where the server takes them");
  add_option(
      command, "--api", o.api, "FORM",
      "how prompts are sent: auto (the server's own way), completions, or chat (the server's "
      "template writes them)")
      ->capture_default_str()
      ->check(CLI::IsMember({"auto", "completions", "chat"}));
  std::vector<std::string> kinds = {"auto"};
  for (const ServerTable* server : servers()) kinds.emplace_back(server->name);
  add_option(command, "--server", o.server, "KIND", "what serves there: " + join(kinds))
      ->capture_default_str()
      ->check(CLI::IsMember(kinds));
  command.add_flag("--force-decode", o.force_decode,
                   "have the judged server generate the full server's answer once more, to compare "
                   "every token of it (vLLM with kvatlas_vllm, and llama.cpp)");
  add_number(command, "--top", o.top, "K",
             "log-probabilities of so many tokens bound the divergences; 0: none are asked for", 0,
             1000);
  add_number(command, "--control", o.control, "N",
             "prompts that the full server is asked twice: what batching alone changes", 0, 100000);
  add_number(command, "--concurrency", o.concurrency, "N", "prompts that are asked at a time", 1,
             256);
  add_option(command, "--prefix-cache", o.prefix_cache, "HOW",
             "avoid: each request is to be read anew, where a request can say so; use: as it comes")
      ->capture_default_str()
      ->check(CLI::IsMember({"avoid", "use"}));
  command.add_flag("--load", o.load,
                   "also ask more and more at a time, to see how many requests the cache holds");
  add_number(command, "--most-concurrent", o.most_concurrent, "N", "the most of --load", 1, 1024);
  add_number(command, "--most-tokens", o.most_tokens, "N",
             "most tokens that all requests may take together, prompts and answers; 0: no limit", 0,
             std::int64_t{1} << 40);
  add_option(command, "--metrics-url", o.metrics_url, "URL",
             "where the judged server publishes its metrics")
      ->default_str("its own address");
  add_number(command, "--timeout", o.timeout, "S", "most seconds of a request", 1.0, 86400.0);
  add_option(command, "--api-key-env", o.key_variable, "NAME",
             "the variable of the environment that holds the key of both servers")
      ->default_str("KVATLAS_API_KEY, and KVATLAS_AGAINST_API_KEY for --full");
  command.add_flag("--key-over-http", o.key_over_http,
                   "send the key to other machines without encryption too");
  add_option(command, "--ca-file", o.ca_file, "FILE",
             "certificates of the authorities that are trusted, instead of the system's");
  add_option(command, "--journal", o.journal, "FILE",
             "keep every answer there; the same command goes on with it");
  command.option_defaults()->group("Options");
}

}  // namespace kvatlas::calibrate
