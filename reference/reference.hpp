// SPDX-License-Identifier: Apache-2.0
// The command line as data, and what is made of it: the man page and the completions of shells.
#pragma once

#include <map>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace CLI {
class App;
}

namespace kvatlas::reference {

struct Option {
  std::vector<std::string> names;   // "-m", "--model"; none: a positional
  std::string value;                // what the help calls its value; empty: a flag
  std::string range;                // "0 to 4096"; empty: any
  std::vector<std::string> values;  // all there are; empty: not known
  std::string standard;             // the default, as the help shows it
  std::string text, group;
  bool required = false, repeats = false, with_commas = false;

  /// Whether its value is a file or a folder.
  bool is_file() const;
};

struct Command {
  std::string name;  // with all before it: "kvatlas calibrate pod"
  std::string text, footer;
  std::vector<Option> options;
  std::vector<Command> commands;

  /// The last word of its name.
  std::string own_name() const;
};

/// Values of options that the command line does not check itself, by the option's name, or by what
/// the help calls the value.
using KnownValues = std::map<std::string, std::vector<std::string>>;

/// All that the help of `app` and its commands shows.
Command describe(const CLI::App& app, const KnownValues& known);
nlohmann::json to_document(const Command& program);

/// roff, for man.
std::string man_page(const Command& program, const std::string& version);
std::string bash_completion(const Command& program);
std::string zsh_completion(const Command& program);
std::string fish_completion(const Command& program);

inline constexpr char kReferenceSummary[] =
    "Print the man page, a shell's completion, or the command line as JSON";

/// `kvatlas reference`: prints one of them, for the program that `app` is.
void add_reference_command(CLI::App& app, const std::string& version, KnownValues known);

}  // namespace kvatlas::reference
