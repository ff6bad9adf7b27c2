// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace kvatlas {

/// What is known of a prompt besides its text: files of prompts hold it, and profiles keep it.
struct PromptDescription {
  std::string id;
  std::string task;                  // may be empty
  std::vector<std::string> answers;  // empty if the prompt asks for nothing that is known
  // What a generated prompt was asked for with. Other prompts have 0, -1 and -1.
  std::int64_t length = 0;  // tokens, at most
  double depth = -1;        // where the answer lies in the text, 0 to 1; -1 for tasks without one
  std::int64_t seed = -1;
};

}  // namespace kvatlas
