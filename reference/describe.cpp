// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <sstream>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "base/help.hpp"
#include "reference/reference.hpp"

namespace kvatlas::reference {

// Found by nlohmann's library, which needs both in the structs' namespace.
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Option, names, value, range, values, standard, text, group,
                                   required, repeats, with_commas)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Command, name, text, footer, options, commands)

namespace {

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> out;
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, separator);) out.push_back(part);
  return out;
}

/// "N:INT in [0 - 4096]" is the value N and its range, "WHEN:{a,b}" the value WHEN and all there
/// are.
void read_type(const std::string& type, Option& option) {
  const auto colon = type.find(':');
  option.value = type.substr(0, colon);
  if (colon == type.npos) return;
  const std::string check = type.substr(colon + 1);
  if (check.front() == '{' && check.back() == '}')
    option.values = split(check.substr(1, check.size() - 2), ',');
  const auto open = check.find(" in ["), dash = check.find(" - ");
  if (open != check.npos && dash != check.npos && check.back() == ']')
    option.range = check.substr(open + 5, dash - open - 5) + " to " +
                   check.substr(dash + 3, check.size() - dash - 4);
}

Option describe_option(const CLI::Option& shown, const KnownValues& known) {
  Option option;
  for (const auto& name : shown.get_snames()) option.names.push_back("-" + name);
  for (const auto& name : shown.get_lnames()) option.names.push_back("--" + name);
  if (shown.get_expected_max() > 0) read_type(shown.get_type_name(), option);
  option.standard = shown.get_default_str();
  option.text = shown.get_description();
  option.group = shown.get_group();
  option.required = shown.get_required();
  option.repeats = shown.get_expected_max() > 1 ||
                   shown.get_multi_option_policy() == CLI::MultiOptionPolicy::TakeAll;
  option.with_commas = shown.get_delimiter() != '\0';
  std::vector<std::string> keys = option.names;
  keys.push_back(option.value);
  for (const auto& key : keys)
    if (const auto found = known.find(key); option.values.empty() && found != known.end())
      option.values = found->second;
  return option;
}

}  // namespace

bool Option::is_file() const {
  constexpr std::array kFiles = {"FILE", "PATH", "DIR", "POLICY"};
  return std::find(kFiles.begin(), kFiles.end(), value) != kFiles.end();
}

std::string Command::own_name() const { return name.substr(name.rfind(' ') + 1); }

Command describe(const CLI::App& app, const KnownValues& known) {
  Command command;
  for (const CLI::App* part = &app; part; part = part->get_parent())
    command.name = part->get_name() + (command.name.empty() ? "" : " ") + command.name;
  command.text = app.get_description();
  command.footer = more_help(app) + app.get_footer();
  for (const CLI::Option* option : app.get_options())
    if (!option->get_group().empty())  // without a group it is hidden
      command.options.push_back(describe_option(*option, known));
  for (const CLI::App* part : app.get_subcommands({}))
    if (!part->get_group().empty()) command.commands.push_back(describe(*part, known));
  return command;
}

nlohmann::json to_document(const Command& program) { return program; }

}  // namespace kvatlas::reference
