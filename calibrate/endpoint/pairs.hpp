// SPDX-License-Identifier: Apache-2.0
// Two servers that are asked the same prompts: one with the full cache, one that is judged.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/line_journal.hpp"
#include "calibrate/endpoint/ask.hpp"

namespace CLI {
class App;
}

namespace kvatlas::calibrate {

/// What the command line says of the two servers.
struct EndpointOptions {
  std::string url, full;    // the one that is judged, and the one with the full cache
  std::string model_names;  // one for both, or one each with a comma between
  std::string server = "auto", api = "auto", prefix_cache = "avoid";
  std::string tokenizer;  // a folder, or a GGUF file
  std::string key_variable, ca_file, journal, metrics_url;
  std::int64_t control = 20, concurrency = 4, top = 20;
  std::int64_t most_concurrent = 16, most_tokens = 0;
  double timeout = 600;
  bool force_decode = false, load = false, key_over_http = false;
  bool asked() const { return !url.empty() || !full.empty(); }
};
void add_endpoint_options(CLI::App& command, EndpointOptions& options);

/// One of the two.
struct ServedSide {
  HttpPlace place;
  ServerTable server;
  ServerFacts facts;
  std::string name() const;  // its kind and its address, for people
};

/// What one prompt shows of the two.
struct AskedPair {
  std::string full_text, compressed_text, control_text;
  std::string full_problem, compressed_problem;  // why a side gave no answer; empty if it did
  bool has_control = false, control_same = false, same = false;
  bool full_cut = false, compressed_cut = false;  // by the most tokens that were asked for
  std::int64_t full_tokens = 0, compressed_tokens = 0, cached_tokens = 0;
  /// Of the compressed side along the full one's answer; none where no ids come back.
  std::optional<AgreementBounds> agreement;
  /// Means over the places of the answer that both sides saw alike.
  std::optional<DivergenceBounds> divergences;
  std::int64_t places = 0;
  /// Seconds, compressed over full; none where a side was asked again or made too few tokens.
  std::optional<double> first_token_ratio, per_token_ratio;
  double full_first_seconds = 0, full_token_seconds = 0;
  double compressed_first_seconds = 0, compressed_token_seconds = 0;
};

/// Asks both servers. Answers are kept in the journal, if one is named.
class ServedPair {
 public:
  /// Looks at both servers. Error(usage) for options that make no sense, Error(resource) for
  /// servers that are not there.
  explicit ServedPair(const EndpointOptions& options);
  ~ServedPair();

  const ServedSide& full() const { return sides_[0]; }
  const ServedSide& compressed() const { return sides_[1]; }
  /// Whether prompts are sent as tokens, or counted as such, and whether as messages.
  bool takes_ids() const;
  bool is_chat() const;
  /// Tokens that a prompt and its answer may have on both; 0: neither says.
  std::int64_t longest() const;
  /// What is to be said of the servers before they are asked.
  std::vector<std::string> notes() const;

  /// Opens the journal; `settings` are those of the prompts. How many answers are there already.
  std::size_t open_journal(nlohmann::json settings);

  /// One pair for each prompt, in their order; the first `control` prompts are put to the full
  /// server twice. Sides alternate. `done` is told after each pair, from any thread but one at a
  /// time. Error(resource) if a server is gone or its answers cannot be read; Error(cancelled)
  /// after Ctrl-C.
  std::vector<AskedPair> ask(std::span<const ServedPrompt> prompts, std::size_t control,
                             const std::function<void(const ServedPrompt&)>& done);

 private:
  ServedAnswer answer_of(HttpConnection& connection, std::size_t side, const char* role,
                         const ServedPrompt& prompt, AskOptions options);
  AskedPair ask_one(std::array<std::unique_ptr<HttpConnection>, 2>& connections,
                    const ServedPrompt& prompt, bool full_first, bool control);

  EndpointOptions options_;
  std::array<ServedSide, 2> sides_;
  std::int64_t top_ = 0;
  std::string salt_;
  std::mutex mutex_;
  std::size_t asked_ = 0;
  std::map<std::pair<std::string, std::string>, ServedAnswer> known_;  // by role and prompt
  std::unique_ptr<LineJournal> journal_;
};

/// An answer as a line of the journal, and back. Error(unreadable) for what is none.
nlohmann::json answer_line(const ServedAnswer& answer);
ServedAnswer answer_of_line(const nlohmann::json& line);
/// What two answers show. `forced` is the compressed side's along the full one's tokens, if that
/// was asked for, or along its text, which may be made of other tokens; `top` is how many
/// log-probabilities were asked for.
AskedPair compare_answers(const ServedAnswer& full, const ServedAnswer& compressed,
                          const ServedAnswer* forced, std::size_t top, bool by_text = false);

}  // namespace kvatlas::calibrate
