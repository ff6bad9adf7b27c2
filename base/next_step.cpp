// SPDX-License-Identifier: Apache-2.0
#include "base/next_step.hpp"

#include <algorithm>
#include <iostream>

#include "base/str.hpp"

namespace kvatlas {

std::string shell_quoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

std::string shell_word(const std::string& text) {
  const auto is_plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string("-_./,=:@%+").find(c) != std::string::npos;
  };
  const bool plain = !text.empty() && std::all_of(text.begin(), text.end(), is_plain);
  return plain ? text : shell_quoted(without_controls(text));
}

std::string model_words(const ModelOptions& options) {
  std::string out = "--model " + shell_word(options.model);
  if (!options.memory_budget.empty())
    out += " --memory-budget " + shell_word(options.memory_budget);
  if (options.device != "auto") out += " --device " + shell_word(options.device);
  return out;
}

NextStep export_step(const std::string& document, const std::string& runtime,
                     const std::string& purpose) {
  return {str("kvatlas export ", shell_word(document), " --to ",
              runtime.empty() ? "all" : shell_word(runtime), " -o exported/"),
          purpose};
}

void say_next(const std::vector<NextStep>& steps) {
  constexpr std::size_t kWidest = 80;  // purposes stand under one another up to here
  std::size_t width = 0;
  for (const auto& step : steps)
    if (step.command.size() <= kWidest) width = std::max(width, step.command.size());
  std::string out;
  for (const auto& step : steps) {
    const std::size_t gap = width > step.command.size() ? width - step.command.size() : 0;
    out += str(out.empty() ? "kvatlas: next: " : "               ", step.command,
               std::string(gap, ' '), "  # ", step.purpose, '\n');
  }
  std::cerr << out;
}

}  // namespace kvatlas
