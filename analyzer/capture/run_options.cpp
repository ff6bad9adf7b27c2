// SPDX-License-Identifier: Apache-2.0
#include "analyzer/capture/run_options.hpp"

#include <algorithm>
#include <fstream>
#include <iostream>
#include <sys/resource.h>
#include <unistd.h>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "base/options.hpp"
#include "base/plain_text.hpp"
#include "base/processor.hpp"
#include "data/longbench.hpp"
#include "data/tool_chat.hpp"

namespace kvatlas::capture {

std::vector<data::Prompt> collect_prompts(const RunOptions& options) {
  std::vector<data::Prompt> prompts;
  if (!options.prompts_file.empty()) {
    auto file = data::read_prompts(options.prompts_file);
    prompts = std::move(file.prompts);
    if (!file.unread.empty())
      std::cerr << "kvatlas: note: " << options.prompts_file
                << ": members not read: " << printable(join(file.unread, ", "), 400) << '\n';
  }
  for (std::size_t i = 0; i < options.prompt_texts.size(); ++i) {
    data::Prompt prompt;
    prompt.id = str("prompt ", i + 1);
    prompt.text = options.prompt_texts[i];
    prompts.push_back(std::move(prompt));
  }
  if (prompts.empty())
    fail(ErrorCode::usage, "nothing to run: give --prompt TEXT or --prompts FILE.jsonl");
  return prompts;
}

void add_model_options(CLI::App& command, RunOptions& options) {
  kvatlas::add_model_options(command, static_cast<ModelOptions&>(options))->required();
  add_option(command, "--chat", options.chat, "FORMAT",
             "write each text prompt as a user's message: auto (the model's own chat template: "
             "right for a model that is served in chats), or a format, of which none is the bare "
             "text: " +
                 join(model::Chat::format_names()))
      ->capture_default_str();
}

void note_bare_prompts(const std::string& chat, const model::ModelFile& model) {
  if (chat != "none" || !model.tokenizer() || !model.tokenizer()->chat_template()) return;
  std::cerr << "kvatlas: note: the model has a chat template, and generated prompts are put to it "
               "as bare text: in a chat its layers attend otherwise, and policies lose otherwise "
               "('--chat auto' writes them as a user's message)\n";
}

void add_prompt_options(CLI::App& command, RunOptions& options) {
  add_option(command, "-p,--prompt", options.prompt_texts, "TEXT", "a prompt; may be repeated")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  add_option(command, "--prompts", options.prompts_file, "FILE", kPromptsFile);
  add_number(command, "--new", options.max_new, "N", "most tokens to generate for each prompt", 0,
             std::int64_t{1} << 24);
  command.add_flag("--ignore-eos", options.ignore_eos, "go on after an end-of-sequence token");
}

std::optional<std::string> chat_text(const data::Prompt& prompt, const model::Chat& chat) {
  // LongBench puts some of its datasets into no chat format.
  const auto* dataset = data::longbench_dataset(prompt.task);
  if (!prompt.tokens.empty() || chat.is_bare() || (dataset && !dataset->chat)) return std::nullopt;
  if (!prompt.tools.empty() && chat.knows_tools())
    return chat.render(data::template_messages(prompt),
                       nlohmann::ordered_json::parse(prompt.tools)) +
           prompt.answer_prefix;
  std::vector<model::ChatMessage> messages;
  for (auto& text : prompt.messages())
    messages.push_back({messages.size() % 2 == 0 ? "user" : "assistant", std::move(text)});
  return chat.render(messages) + prompt.answer_prefix;
}

std::vector<std::int64_t> encode_prompt(const data::Prompt& prompt, const model::ModelFile& model,
                                        const model::Chat& chat) {
  if (!prompt.tokens.empty()) {
    require_in_vocabulary(prompt.tokens, model.config(), ErrorCode::unreadable);
    return prompt.tokens;
  }
  const model::Tokenizer* tokenizer = model.tokenizer().get();
  if (!tokenizer)
    fail(ErrorCode::usage,
         model.tokenizer_problem().empty()
             ? "the model has no tokenizer"
             : "the model's tokenizer cannot be used (" + model.tokenizer_problem() + ")",
         "; give the prompt as 'tokens' in --prompts FILE");
  if (const auto text = chat_text(prompt, chat))
    return tokenizer->encode(*text, {.add_special = false, .parse_special = true});
  return tokenizer->encode(prompt.with_answer_prefix());
}

std::vector<std::int64_t> end_tokens(const model::ModelFile& model, bool ignore_eos) {
  if (ignore_eos) return {};
  std::vector<std::int64_t> ids = model.config().eos_tokens;
  if (model.tokenizer())
    for (const auto id : model.tokenizer()->end_ids()) ids.push_back(id);
  return ids;
}

namespace {

/// What `ulimit -v` leaves of the address space; 0: there is no limit. It is a budget to be kept:
/// at its end LibTorch's kernels do not fail, but crash.
std::int64_t address_space_left() {
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return 0;
  std::int64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  const std::int64_t taken = pages * sysconf(_SC_PAGESIZE);
  return std::max<std::int64_t>(1, static_cast<std::int64_t>(limit.rlim_cur) - taken);
}

}  // namespace

EngineOptions engine_options(const ModelOptions& options) {
  EngineOptions engine;
  engine.memory_budget = options.memory_budget.empty() ? 0 : parse_bytes(options.memory_budget);
  if (const auto left = address_space_left(); left > 0)
    engine.memory_budget = engine.memory_budget > 0 ? std::min(engine.memory_budget, left) : left;
  use_threads(options.threads);
  engine.placement = choose_placement(options.device, options.dtype);
  if (engine.placement.device == "cpu" && engine.placement.dtype == "bfloat16" &&
      processor().bfloat16().empty())
    std::cerr << "kvatlas: note: this processor multiplies no matrices of bfloat16: float32 is "
                 "several times faster here\n";
  return engine;
}

Session open_session(const RunOptions& options) {
  Session session;
  session.prompts = collect_prompts(options);
  session.model = model::ModelFile::open(options.model);
  EngineOptions engine = engine_options(options);
  const model::Chat chat(options.chat, session.model->tokenizer().get());
  for (const auto& prompt : session.prompts) {
    session.tokens.push_back(in_context(
        printable(prompt.id), [&] { return encode_prompt(prompt, *session.model, chat); }));
    const auto length = static_cast<std::int64_t>(session.tokens.back().size()) + options.max_new;
    engine.longest = std::max(engine.longest, length);
    engine.all_tokens += length;
  }
  session.end_tokens = end_tokens(*session.model, options.ignore_eos);
  session.engine = std::make_unique<Engine>(session.model, engine);
  session.placement = engine.placement;
  return session;
}

}  // namespace kvatlas::capture
