// SPDX-License-Identifier: Apache-2.0
// Scripts that complete commands, options, values of which all are known, and files.
#include <functional>

#include "base/next_step.hpp"
#include "base/plain_text.hpp"
#include "base/str.hpp"
#include "reference/reference.hpp"

namespace kvatlas::reference {
namespace {

/// `text` with a backslash before each of `special`.
std::string escaped(const std::string& text, const std::string& special) {
  std::string out;
  for (const char c : text) {
    if (special.find(c) != special.npos) out += '\\';
    out += c;
  }
  return out;
}

void each_command(const Command& command, const std::function<void(const Command&)>& visit) {
  visit(command);
  for (const auto& part : command.commands) each_command(part, visit);
}

std::vector<std::string> own_names(const std::vector<Command>& commands) {
  std::vector<std::string> out;
  for (const auto& command : commands) out.push_back(command.own_name());
  return out;
}

/// Names of the options, all or those that take a value.
std::vector<std::string> option_names(const Command& command, bool with_value) {
  std::vector<std::string> out;
  for (const auto& option : command.options)
    if (!with_value || !option.value.empty())
      out.insert(out.end(), option.names.begin(), option.names.end());
  return out;
}

std::vector<Option> positionals(const Command& command) {
  std::vector<Option> out;
  for (const auto& option : command.options)
    if (option.names.empty()) out.push_back(option);
  return out;
}

// What follows the tables in bash. A value after "=" is a word of its own there.
constexpr const char* kBash = R"bash(
_kvatlas() {
  local path=kvatlas commands options valued values files commas places
  local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]}
  local place=1 skip='' prefix='' word i
  COMPREPLY=()
  if [[ $current == '=' ]]; then
    current=''
  elif [[ $previous == '=' ]]; then
    previous=${COMP_WORDS[COMP_CWORD - 2]}
  fi
  __kvatlas_command "$path"
  for ((i = 1; i < COMP_CWORD; i++)); do
    word=${COMP_WORDS[i]}
    if [[ $word == '=' ]]; then
      skip=1
    elif [[ $skip ]]; then
      skip=''
    elif [[ " $valued " == *" $word "* ]]; then
      skip=1
    elif [[ " $commands " == *" $word "* ]]; then
      path+=" $word"
      __kvatlas_command "$path"
    elif [[ $word != -* ]]; then
      ((++place))
    fi
  done
  if [[ " $valued " == *" $previous "* ]]; then
    __kvatlas_values "$path $previous"
  elif [[ $current == -* ]]; then
    values=$options
  elif [[ $commands ]]; then
    values=$commands
  elif ((places)); then
    __kvatlas_values "$path $((place < places ? place : places))"
  fi
  if [[ $commas && $current == *,* ]]; then
    prefix=${current%,*},
    current=${current##*,}
  fi
  if [[ $files ]]; then
    compopt -o filenames 2>/dev/null
    mapfile -t COMPREPLY < <(compgen -f -- "$current")
  else
    mapfile -t COMPREPLY < <(compgen -W "$values" -P "$prefix" -- "$current")
  fi
}
complete -F _kvatlas kvatlas
)bash";

std::string bash_values(const Option& option) {
  if (option.values.empty()) return option.is_file() ? "files=1" : "";
  return "values=" + shell_quoted(join(option.values, " ")) +
         (option.with_commas ? " commas=1" : "");
}

}  // namespace

std::string bash_completion(const Command& program) {
  std::string tables = "__kvatlas_command() {\n  case $1 in\n", values;
  each_command(program, [&](const Command& command) {
    const auto places = positionals(command);
    tables += str("    ", shell_quoted(command.name),
                  ") commands=", shell_quoted(join(own_names(command.commands), " ")),
                  " places=", places.size(),
                  "\n      options=", shell_quoted(join(option_names(command, false), " ")),
                  "\n      valued=", shell_quoted(join(option_names(command, true), " ")), " ;;\n");
    for (std::size_t i = 0; i < places.size(); ++i)
      if (const auto set = bash_values(places[i]); !set.empty())
        values += str("    ", shell_quoted(str(command.name, ' ', i + 1)), ") ", set, " ;;\n");
    for (const auto& option : command.options) {
      const auto set = bash_values(option);
      if (set.empty() || option.names.empty()) continue;
      std::vector<std::string> keys;
      for (const auto& name : option.names) keys.push_back(shell_quoted(command.name + " " + name));
      values += "    " + join(keys, " | ") + ") " + set + " ;;\n";
    }
  });
  return "# bash completion for kvatlas: what 'kvatlas reference bash' prints.\n"
         "# shellcheck shell=bash disable=SC2034\n" +
         tables + "  esac\n}\n\n__kvatlas_values() {\n  case $1 in\n" + values + "  esac\n}\n" +
         kBash;
}

namespace {

/// What may stand behind an option or at a place: ":label:action".
std::string zsh_value(const Option& option) {
  const std::string label = ":" + escaped(option.value, ":\\") + ":";
  if (option.values.empty()) return label + (option.is_file() ? "_files" : " ");
  const std::string all = join(option.values, " ");
  return label + (option.with_commas ? "_sequence compadd - " + all : "(" + all + ")");
}

std::string zsh_option(const Option& option) {
  const std::string what =
      "[" + escaped(option.text, "[]\\:") + "]" + (option.value.empty() ? "" : zsh_value(option));
  std::string out;
  for (const auto& name : option.names) {
    const std::string others = option.repeats ? "*" : "(" + join(option.names, " ") + ")";
    const char* sign = option.value.empty() ? "" : name.rfind("--", 0) == 0 ? "=" : "+";
    out += " \\\n    " + shell_quoted(others + name + sign + what);
  }
  return out;
}

std::string zsh_function(const Command& command) {
  std::string name = "_" + command.name;
  for (char& c : name)
    if (c == ' ') c = '_';
  return name;
}

}  // namespace

std::string zsh_completion(const Command& program) {
  std::string out = "#compdef kvatlas\n# What 'kvatlas reference zsh' prints.\n";
  each_command(program, [&](const Command& command) {
    out += "\n" + zsh_function(command) + "() {\n";
    if (!command.commands.empty())
      out += "  local context state state_descr line\n  typeset -A opt_args\n";
    out += "  _arguments";
    if (!command.commands.empty()) out += " -C";
    for (const auto& option : command.options)
      out += option.names.empty()
                 ? " \\\n    " + shell_quoted((option.repeats ? "*" : "") + zsh_value(option))
                 : zsh_option(option);
    if (command.commands.empty()) {
      out += "\n}\n";
      return;
    }
    out +=
        " \\\n    '1:command:->command' '*::argument:->argument'\n  case $state in\n"
        "    command)\n      local -a commands=(";
    for (const auto& part : command.commands)
      out += "\n        " + shell_quoted(part.own_name() + ":" + part.text);
    out += ")\n      _describe command commands ;;\n    argument)\n      case $line[1] in\n";
    for (const auto& part : command.commands)
      out += "        " + part.own_name() + ") " + zsh_function(part) + " ;;\n";
    out += "      esac ;;\n  esac\n}\n";
  });
  return out + "\n_kvatlas \"$@\"\n";
}

std::string fish_completion(const Command& program) {
  std::string commands, valued, lines;
  each_command(program, [&](const Command& command) {
    const std::string start = "complete -c kvatlas -n " +
                              shell_quoted("test (__kvatlas_path) = \"" + command.name + "\"");
    const auto value = [](const Option& option) -> std::string {
      if (option.values.empty()) return option.is_file() ? " -r -F" : " -x";
      const std::string all = join(option.values, " ");
      return " -x -a " + shell_quoted(option.with_commas ? "(__fish_append , " + all + ")" : all);
    };
    if (positionals(command).empty()) lines += start + " -f\n";
    for (const auto& part : command.commands) {
      commands += " " + shell_quoted(part.name);
      lines += start + " -a " + part.own_name() + " -d " + shell_quoted(part.text) + "\n";
    }
    for (const auto& option : command.options) {
      if (option.names.empty()) {
        if (!option.values.empty())
          lines += start + " -a " + shell_quoted(join(option.values, " ")) + "\n";
        continue;
      }
      lines += start;
      for (const auto& name : option.names) {
        lines += name.rfind("--", 0) == 0 ? " -l " + name.substr(2) : " -s " + name.substr(1);
        if (!option.value.empty()) valued += " " + shell_quoted(command.name + " " + name);
      }
      lines +=
          (option.value.empty() ? "" : value(option)) + " -d " + shell_quoted(option.text) + "\n";
    }
  });
  return "# What 'kvatlas reference fish' prints.\n"
         "function __kvatlas_path\n"
         "    set -l path kvatlas\n"
         "    set -l skip 0\n"
         "    for word in (commandline -opc)[2..-1]\n"
         "        if test $skip = 1\n"
         "            set skip 0\n"
         "        else if contains -- \"$path $word\"" +
         commands +
         "\n"
         "            set path \"$path $word\"\n"
         "        else if contains -- \"$path $word\"" +
         valued +
         "\n"
         "            set skip 1\n"
         "        end\n"
         "    end\n"
         "    echo $path\n"
         "end\n" +
         lines;
}

}  // namespace kvatlas::reference
