// SPDX-License-Identifier: Apache-2.0
// The end of a command that took its time: what is usually done next with what it made.
#pragma once

#include <string>
#include <vector>

#include "base/model_options.hpp"

namespace kvatlas {

/// In single quotes, for a shell.
std::string shell_quoted(const std::string& text);
/// As a shell takes it for one word: in quotes if it must be.
std::string shell_word(const std::string& text);

/// "--model M", with the memory budget and the device if they were given: how the next command runs
/// the same model.
std::string model_words(const ModelOptions& options);

struct NextStep {
  std::string command;  // "kvatlas view p.h5"
  std::string purpose;  // "look at it"
};
/// The document's files for a runtime, or for all if none is named.
NextStep export_step(const std::string& document, const std::string& runtime,
                     const std::string& purpose = "files for runtimes");
/// Prints them on stderr, a line each, under one another.
void say_next(const std::vector<NextStep>& steps);

}  // namespace kvatlas
