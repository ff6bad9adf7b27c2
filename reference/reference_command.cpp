// SPDX-License-Identifier: Apache-2.0
#include <iostream>
#include <memory>

#include <nlohmann/json.hpp>

#include "base/options.hpp"
#include "reference/reference.hpp"

namespace kvatlas::reference {

void add_reference_command(CLI::App& app, const std::string& version, KnownValues known) {
  CLI::App* command = app.add_subcommand("reference", kReferenceSummary);
  const auto format = std::make_shared<std::string>();
  add_option(*command, "format", *format, "FORMAT", "man, bash, zsh, fish or json")
      ->required()
      ->check(CLI::IsMember({"man", "bash", "zsh", "fish", "json"}));
  command->footer(
      "Examples:\n"
      "  kvatlas reference bash > ~/.local/share/bash-completion/completions/kvatlas\n"
      "  kvatlas reference man > kvatlas.1");
  command->callback([format, &app, version, known = std::move(known)] {
    const Command program = describe(app, known);
    if (*format == "man") std::cout << man_page(program, version);
    if (*format == "bash") std::cout << bash_completion(program);
    if (*format == "zsh") std::cout << zsh_completion(program);
    if (*format == "fish") std::cout << fish_completion(program);
    if (*format == "json") std::cout << to_document(program).dump(1) << '\n';
  });
}

}  // namespace kvatlas::reference
