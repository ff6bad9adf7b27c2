// SPDX-License-Identifier: Apache-2.0
// What policies keep of prompts, token by token, as the lines of `kvatlas evaluate --generations
// --positions` say it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "viewer/models/chart.hpp"
#include "viewer/models/shown_text.hpp"

namespace kvatlas::viewer {

struct KeptRun {
  /// From `first` up to, but without, `end`.
  struct Tokens {
    std::int64_t first = 0, end = 0;
  };
  /// [layer * KV heads + head]: what each holds once `read` tokens were read, of the prompt and
  /// behind it. What is read later is held too, until the next such list.
  struct Held {
    std::int64_t read = 0;
    std::vector<std::vector<Tokens>> heads;
  };
  std::string policy;
  std::vector<std::string> pieces;  // texts of the tokens that it generated; may be empty
  std::int64_t read = 0;            // tokens read at the end
  std::vector<Held> held;           // ascending; the first is what the cut left
};

struct KeptPrompt {
  std::string id;
  std::int64_t tokens = 0;
  std::vector<std::string> pieces;  // texts of its tokens; may be empty
  std::vector<KeptRun> runs;

  std::int64_t most_read() const;  // of all runs
};

struct KeptTokens {
  std::int64_t layers = 0, kv_heads = 0;
  std::vector<KeptPrompt> prompts;
};

/// Whether the file begins with such a line. Error(unreadable) if it cannot be read.
bool holds_kept_tokens(const std::filesystem::path& path);
/// Error(unreadable), with the file and the line, for anything that such lines do not hold.
KeptTokens read_kept_tokens(const std::filesystem::path& path);
/// The same of text; `name` stands in the messages.
KeptTokens parse_kept_tokens(std::string_view text, const std::string& name);

/// [layer * KV heads + head]: the share of the tokens read so far that each holds.
std::vector<double> shares_of_heads(const KeptRun& run, std::int64_t read);
/// [token read so far]: the share of the heads that hold it; of one head 0 or 1.
std::vector<double> shares_of_tokens(const KeptRun& run, std::int64_t read,
                                     std::optional<std::size_t> head);

struct KeptChoices {
  std::size_t prompt = 0, first = 0;     // the prompt, and the policy's run
  std::optional<std::size_t> second;     // the run beside it
  std::int64_t read = 0;                 // how many tokens were read
  std::optional<std::size_t> head = {};  // layer * KV heads + head; none: all heads
};
struct KeptView {
  Chart shares;                  // layers by KV heads, a matrix a policy
  std::vector<ShownText> texts;  // one a policy
};
KeptView kept_view(const KeptTokens& kept, const KeptChoices& choices);

}  // namespace kvatlas::viewer
