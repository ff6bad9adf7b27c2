// SPDX-License-Identifier: Apache-2.0
#include <iostream>
#include <memory>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/json_text.hpp"
#include "reference/reference.hpp"

namespace kvatlas::reference {
namespace {

struct Options {
  std::string format, others;
};

constexpr std::size_t kMostBytes = std::size_t{1} << 22U;

}  // namespace

void add_reference_command(CLI::App& app, const std::string& version, KnownValues known) {
  CLI::App* command = app.add_subcommand(
      "reference", "Print the man page, a shell's completion, or the command line as JSON");
  const auto options = std::make_shared<Options>();
  command->add_option("format", options->format, "man, bash, zsh, fish or json")
      ->required()
      ->type_name("FORMAT")
      ->check(CLI::IsMember({"man", "bash", "zsh", "fish", "json"}));
  command
      ->add_option("--with", options->others,
                   "the commands of kvatlas-viewer, as its 'reference json' prints them")
      ->type_name("FILE");
  command->footer(
      "Examples:\n"
      "  kvatlas reference bash > ~/.local/share/bash-completion/completions/kvatlas\n"
      "  kvatlas reference man > kvatlas.1");
  command->callback([options, &app, version, known = std::move(known)] {
    Command program = describe(app, known);
    if (!options->others.empty())
      in_context(options->others,
                 [&] { join(program, read_text_file(options->others, kMostBytes)); });
    if (options->format == "man") std::cout << man_page(program, version);
    if (options->format == "bash") std::cout << bash_completion(program);
    if (options->format == "zsh") std::cout << zsh_completion(program);
    if (options->format == "fish") std::cout << fish_completion(program);
    if (options->format == "json") std::cout << to_document(program).dump(1) << '\n';
  });
}

}  // namespace kvatlas::reference
