// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <cstdio>
#include <iostream>
#include <memory>
#include <optional>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "analyzer/capture/commands.hpp"
#include "analyzer/capture/generate.hpp"
#include "analyzer/capture/progress.hpp"
#include "analyzer/capture/run_options.hpp"
#include "analyzer/capture/run_speed.hpp"
#include "base/error.hpp"
#include "base/json_text.hpp"
#include "base/next_step.hpp"

namespace kvatlas {
namespace {

using nlohmann::json;

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

std::string rounded(double value) {
  char text[32];
  std::snprintf(text, sizeof text, value < 10 ? "%.2f" : value < 100 ? "%.1f" : "%.0f", value);
  return text;
}

/// The `count` largest logits as [id, logit].
json top_logits(const std::vector<float>& logits, std::size_t count) {
  json top = json::array();
  for (const auto id : capture::best_tokens(logits, count)) top.push_back({id, logits[id]});
  return top;
}

json json_line(const data::Prompt& prompt, const capture::Generated& generated,
               const model::Tokenizer* tokenizer) {
  json line;
  line["id"] = prompt.id;
  line["tokens"] = generated.tokens;
  line["text"] = tokenizer ? json(tokenizer->decode(generated.tokens, true)) : json(nullptr);
  line["top"] = top_logits(generated.prompt_logits, 20);
  return line;
}

/// Shows text as it is generated: one prompt at a time is streamed, several are printed when done.
class TextOutput {
 public:
  explicit TextOutput(const capture::Session& session) : session_(session) {
    if (session.model->tokenizer() && session.prompts.size() == 1)
      decoder_.emplace(session.model->tokenizer());
  }

  void token(std::int64_t id) {
    if (decoder_) std::cout << shown(decoder_->push(id)) << std::flush;
  }

  void finish(const std::vector<capture::Generated>& results) {
    if (decoder_) {
      std::cout << shown(decoder_->finish()) << '\n';
      return;
    }
    const auto& tokenizer = session_.model->tokenizer();
    for (std::size_t i = 0; i < results.size(); ++i) {
      std::cout << "--- " << printable(session_.prompts[i].id) << '\n'
                << (tokenizer ? shown(tokenizer->decode(results[i].tokens, true))
                              : list_str(results[i].tokens))
                << '\n';
    }
  }

 private:
  /// A terminal would obey control characters; a file gets the text as it is.
  std::string shown(const std::string& text) const {
    return to_terminal_ ? without_controls(text, "\n\t") : text;
  }

  const capture::Session& session_;
  const bool to_terminal_ = isatty(STDOUT_FILENO) == 1;
  std::optional<model::StreamingDecoder> decoder_;
};

/// Reading the prompts one after the other, and generating for all of them together.
double expected_seconds(const capture::Session& session, std::int64_t max_new) {
  const capture::RunSpeed speed(*session.model, session.placement, session.engine->streaming());
  double seconds = speed.weights(), tokens = 0;
  for (const auto& prompt : session.tokens) {
    seconds += speed.prefill(static_cast<double>(prompt.size()));
    tokens += static_cast<double>(prompt.size());
  }
  const auto prompts = static_cast<double>(session.tokens.size());
  return seconds + static_cast<double>(max_new) * speed.step(prompts, prompts, tokens / prompts);
}

void generate(const capture::RunOptions& options, bool as_json) {
  const auto start = std::chrono::steady_clock::now();
  const capture::Session session = capture::open_session(options);
  const double open_seconds = seconds_since(start);
  std::cerr << "kvatlas: " << session.engine->plan() << ", at most about "
            << capture::duration_str(expected_seconds(session, options.max_new)) << '\n';

  TextOutput text(session);
  double first_layer_seconds = 0, prefill_seconds = 0;
  const auto run_start = std::chrono::steady_clock::now();
  capture::GenerateObservers observers;
  observers.progress = [&](std::int64_t layers) {
    if (layers == 1 && first_layer_seconds == 0) first_layer_seconds = seconds_since(start);
  };
  observers.prefilled = [&] { prefill_seconds = seconds_since(run_start); };
  if (!as_json) observers.token = [&](std::size_t, std::int64_t id) { text.token(id); };
  const auto results =
      capture::generate(*session.engine, session.tokens,
                        {.max_new = options.max_new, .end_tokens = session.end_tokens}, observers);
  const double decode_seconds = seconds_since(run_start) - prefill_seconds;

  std::size_t prompt_tokens = 0, new_tokens = 0;
  for (const auto& tokens : session.tokens) prompt_tokens += tokens.size();
  for (const auto& result : results) new_tokens += result.tokens.size();
  if (as_json) {
    for (std::size_t i = 0; i < results.size(); ++i)
      std::cout << json_text(
                       json_line(session.prompts[i], results[i], session.model->tokenizer().get()))
                << '\n';
  } else {
    text.finish(results);
  }
  std::cerr << "kvatlas: opened in " << rounded(open_seconds) << " s, first layer done after "
            << rounded(first_layer_seconds) << " s; prompt: " << prompt_tokens << " tokens in "
            << rounded(prefill_seconds) << " s ("
            << rounded(static_cast<double>(prompt_tokens) / prefill_seconds) << " a second)";
  if (new_tokens > 0)
    std::cerr << "; generated: " << new_tokens << " tokens in " << rounded(decode_seconds) << " s ("
              << rounded(static_cast<double>(new_tokens) / decode_seconds) << " a second)";
  std::cerr << '\n';
  if (!as_json)
    say_next({{str("kvatlas profile ", model_words(options),
                   options.chat == "none" ? "" : " --chat " + options.chat, " -o p.h5"),
               "what it attends to"}});
}

}  // namespace

void add_generate_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("generate", kGenerateSummary);
  auto options = std::make_shared<capture::RunOptions>();
  auto as_json = std::make_shared<bool>(false);
  capture::add_model_options(*command, *options);
  capture::add_prompt_options(*command, *options);
  command->add_flag(
      "--json", *as_json,
      "print one line of JSON for each prompt: id, tokens (the new ids), text, top (the "
      "20 best [id, logit] after the prompt)");
  command->footer(
      "Examples:\n"
      "  kvatlas generate --model SmolLM2.gguf --chat auto --prompt \"What is a KV cache?\"\n"
      "  kvatlas generate --model ./Llama-3.1-8B --prompts questions.jsonl --new 32 --json\n"
      "  kvatlas generate --model ./Llama-3.1-8B --prompt \"Once\" --memory-budget 6GiB");
  command->callback([options, as_json] { generate(*options, *as_json); });
}

}  // namespace kvatlas
