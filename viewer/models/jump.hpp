// SPDX-License-Identifier: Apache-2.0
// Where a text that is typed into the jump box leads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace kvatlas::viewer {

/// The things that a text can name.
struct JumpContext {
  /// Layers and query heads of the model; 0 if no profile is open.
  std::int64_t layers = 0, heads = 0;
  std::int64_t tokens = 0;  // tokens of the chosen sample
  /// The chosen layer: lists of layers begin with the next one after it.
  std::int64_t layer = 0;
  struct Name {
    std::string id, title;
  };
  std::vector<Name> screens;
  struct Policy {
    std::string name, screen;  // "simlayerkv" is decided on the screen "lazy"
  };
  std::vector<Policy> policies;
  /// Words for layers, such as "lazy", each with the layers that it is true of.
  std::vector<std::pair<std::string, std::vector<std::int64_t>>> predicates;
  /// Ids of the samples by position; names of the tasks.
  std::vector<std::string> samples, tasks;
  std::vector<std::string> token_texts;  // of the chosen sample; empty if they are not known
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
  std::string problem;      // why there are none; also empty if nothing was typed
};
inline constexpr std::size_t kMostJumps = 50;

/// "L12", "L12.H3", "h3", "q5120", "k17", "s2" and several of them, "lazy", "not lazy", screens,
/// policies, samples, tasks, text of tokens ("quoted" text is only that).
JumpAnswer find_jumps(const std::string& text, const JumpContext& context);

/// "L12.H3 q5120 k17".
std::string place_text(std::int64_t layer, std::int64_t head, std::int64_t query, std::int64_t key);

}  // namespace kvatlas::viewer
