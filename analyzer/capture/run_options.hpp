// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "analyzer/capture/engine.hpp"
#include "analyzer/jinja/chat.hpp"
#include "base/model_options.hpp"
#include "data/prompts.hpp"

namespace CLI {
class App;
}

namespace kvatlas::capture {

/// How a command runs a model, and the prompts that it runs.
struct RunOptions : ModelOptions {
  std::vector<std::string> prompt_texts;
  std::string prompts_file;
  std::int64_t max_new = 64;
  bool ignore_eos = false;
  std::string chat = "none";

  /// Whether prompts are given; if not, they are generated.
  bool has_own_prompts() const { return !prompts_file.empty() || !prompt_texts.empty(); }
};

/// What --prompts takes, for its help.
inline constexpr const char* kPromptsFile =
    "JSONL file of one of the layouts of docs/tasks.md: its own, RULER's, kvpress's, SCBench's, "
    "LongBench v2's, or OpenAI's for transcripts";

/// Adds --model, --device, --dtype, --threads, --memory-budget and --chat.
void add_model_options(CLI::App& command, RunOptions& options);
/// Says on stderr that generated prompts are bare text to a model with a chat template. Commands
/// that make prompts call it once, with how they are written.
void note_bare_prompts(const std::string& chat, const model::ModelFile& model);
/// Adds --prompt, --prompts, --new and --ignore-eos.
void add_prompt_options(CLI::App& command, RunOptions& options);

/// A model opened and ready to run, with its prompts as token ids.
struct Session {
  std::shared_ptr<const model::ModelFile> model;
  std::vector<data::Prompt> prompts;
  std::vector<std::vector<std::int64_t>> tokens;  // of each prompt
  std::vector<std::int64_t> end_tokens;           // empty with --ignore-eos
  std::unique_ptr<Engine> engine;
  Placement placement;  // of the engine
};
Session open_session(const RunOptions& options);

// The steps of open_session, for commands that need more than one list of prompts.
std::vector<data::Prompt> collect_prompts(const RunOptions& options);
/// The text of a prompt as a chat format writes it; none for prompts that are put into no chat, and
/// those given as tokens. Functions that may be called stand where the model's template has them,
/// or in the user's message.
std::optional<std::string> chat_text(const data::Prompt& prompt, const model::Chat& chat);
std::vector<std::int64_t> encode_prompt(const data::Prompt& prompt, const model::ModelFile& model,
                                        const model::Chat& chat);
std::vector<std::int64_t> end_tokens(const model::ModelFile& model, bool ignore_eos);
/// Device, number format, threads and memory budget. What depends on the prompts is not set.
EngineOptions engine_options(const ModelOptions& options);

}  // namespace kvatlas::capture
