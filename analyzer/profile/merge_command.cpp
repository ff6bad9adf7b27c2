// SPDX-License-Identifier: Apache-2.0
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "analyzer/profile/commands.hpp"
#include "analyzer/profile/profile.hpp"
#include "base/next_step.hpp"
#include "base/options.hpp"
#include "base/str.hpp"
#include "base/text_count.hpp"

namespace kvatlas {

void add_merge_command(CLI::App& app) {
  struct Options {
    std::vector<std::string> inputs;
    std::string output;
    bool force = false;
  };
  const auto options = std::make_shared<Options>();
  CLI::App* command =
      app.add_subcommand("merge", "Put the samples of several profiles of one model into one file");
  add_option(*command, "files", options->inputs, "FILE",
             "profiles, or the parts of an unfinished one")
      ->required();
  add_option(*command, "-o,--output", options->output, "FILE", "the profile to write")->required();
  command->add_flag("--force", options->force, "replace the output if it exists");
  command->footer(
      "Shards of one plan come together by index; of those with one index the first stays.\n"
      "Other profiles follow one another. Model and capture settings must be equal.\n"
      "\n"
      "Example:\n"
      "  kvatlas merge a.h5 b.h5 -o both.h5");
  command->callback([options] {
    const std::vector<std::filesystem::path> inputs(options->inputs.begin(), options->inputs.end());
    profile::merge(inputs, options->output, options->force);
    const profile::Reader merged(options->output);
    std::cerr << options->output << ": " << merged.samples().size() << " of "
              << count_of(merged.header().planned_samples, "sample", "samples") << '\n';
    say_next({{str("kvatlas calibrate all -p ", shell_word(options->output), " -o policy.json"),
               "what the cache can do without; --model M tries it"}});
  });
}

}  // namespace kvatlas
