// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace kvatlas {

/// Which model a command runs, and how: what every command that runs one is asked for.
struct ModelOptions {
  std::string model;            // GGUF file, Hugging Face folder, or a name in its cache
  std::string device = "auto";  // "auto", "cpu", "cuda" or "cuda:N"
  std::string dtype = "auto";   // "auto", "float32", "float16" or "bfloat16"
  int threads = 0;              // CPU threads; 0 takes all cores
  std::string memory_budget;    // "6GiB"; empty if there is no limit
};

/// Adds --model, --device, --dtype, --threads and --memory-budget. Returns --model, which the
/// caller may require or describe otherwise.
CLI::Option* add_model_options(CLI::App& command, ModelOptions& options);

}  // namespace kvatlas
