// SPDX-License-Identifier: Apache-2.0
// What is typed into the jump box: where it leads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace kvatlas::viewer {

/// What a text can name.
struct JumpContext {
  std::int64_t layers = 0, heads = 0;  // query heads; 0: no profile is open
  std::int64_t tokens = 0;             // of the sample that is chosen
  std::int64_t layer = 0;              // chosen now: "after" it comes first in lists of layers
  struct Name {
    std::string id, title;
  };
  std::vector<Name> screens;
  struct Policy {
    std::string name, screen;  // "simlayerkv" is decided on the screen "lazy"
  };
  std::vector<Policy> policies;
  /// "lazy" -> the layers that are.
  std::vector<std::pair<std::string, std::vector<std::int64_t>>> predicates;
  std::vector<std::string> samples, tasks;  // ids, by position; names
  std::vector<std::string> token_texts;     // of the sample; empty: not known
};

struct Jump {
  std::string title, detail;
  std::optional<std::int64_t> layer, head, query, key;
  std::optional<std::size_t> sample;
  std::optional<std::string> task;
  std::string screen = {};
};

struct JumpAnswer {
  std::vector<Jump> jumps;  // the best one first, at most kMostJumps
  std::string problem;      // why there are none; empty also for an empty text
};
inline constexpr std::size_t kMostJumps = 50;

/// "L12", "L12.H3", "h3", "q5120", "k17", "s2" and several of them, "lazy", "not lazy", screens,
/// policies, samples, tasks, text of tokens ("quoted" text is only that).
JumpAnswer find_jumps(const std::string& text, const JumpContext& context);

/// "L12.H3 q5120 k17".
std::string place_text(std::int64_t layer, std::int64_t head, std::int64_t query, std::int64_t key);

}  // namespace kvatlas::viewer
