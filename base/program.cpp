// SPDX-License-Identifier: Apache-2.0
#include "base/program.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
#include <iostream>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

#include "base/error.hpp"
#include "base/exit_codes.hpp"
#include "base/foreign_error.hpp"
#include "base/help.hpp"
#include "base/interrupt.hpp"
#include "base/str.hpp"

namespace kvatlas {

namespace {

int report(int status, const std::string& text) {
  std::cerr << "kvatlas: " << without_controls(text, "\n") << '\n';
  return status;
}

/// Lets every command take --help-all, so that nobody has to know which have more to show.
void take_help_all(CLI::App& command) {
  if (!command.get_help_all_ptr()) command.set_help_all_flag("--help-all")->group("");
  for (CLI::App* part : command.get_subcommands({})) take_help_all(*part);
}

/// Lets every option take one word as its value, so that none swallows the words behind it: a list
/// is one word with commas, or the option is given several times.
void take_one_word_each(CLI::App& command) {
  for (CLI::Option* option :
       command.get_options([](const auto* one) { return one->nonpositional(); }))
    option->allow_extra_args(false);
  for (CLI::App* part : command.get_subcommands({})) take_one_word_each(*part);
}

/// Has the command a --help-all that shows more than its --help?
bool shows_more(const CLI::App& command) {
  return !command.get_help_all_ptr()->get_group().empty();
}

/// How many letters have to be added, left out or changed to make one word of the other.
std::size_t edits_between(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i + 1);
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t changed = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({changed, diagonal + 1, row[j] + 1});
    }
  }
  return row.back();
}

/// "; did you mean X?" with the one of the known words that is most like it, if one is alike.
std::string meant(std::string_view word, const std::vector<std::string>& known) {
  std::size_t least = std::min<std::size_t>(3, word.size() / 3) + 1;
  std::string best;
  for (const auto& one : known)
    if (const std::size_t edits = edits_between(word.substr(0, 64), one); edits < least) {
      least = edits;
      best = one;
    }
  return best.empty() ? "" : "; did you mean " + best + "?";
}

std::vector<std::string> command_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands({})) names.push_back(command->get_name());
  return names;
}

std::vector<std::string> option_names(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options())
    for (const auto& name : option->get_lnames()) names.push_back("--" + name);
  return names;
}

/// The command that was chosen, and how it is called.
std::pair<const CLI::App*, std::string> chosen_command(const CLI::App& app) {
  std::pair<const CLI::App*, std::string> out{&app, "kvatlas"};
  for (auto chosen = app.get_subcommands(); !chosen.empty();
       chosen = out.first->get_subcommands()) {
    out.first = chosen.front();
    out.second += " " + out.first->get_name();
  }
  return out;
}

/// Whether what an interrupted command has finished is kept, so that it can go on.
bool can_go_on(const CLI::App& command) {
  const auto given = [&](const char* name) {
    const CLI::Option* option = command.get_option_no_throw(name);
    return option && option->count() > 0;
  };
  return command.get_option_no_throw("--resume") && given("--output");
}

/// What is wrong with the words of the command line, and where their right use is shown.
std::string usage_error(const CLI::App& app, const CLI::ParseError& error) {
  const auto [innermost, command] = chosen_command(app);
  // A word where a command is expected.
  const auto words = innermost->remaining();
  if (!innermost->get_subcommands({}).empty() && !words.empty() && !words.front().starts_with('-'))
    return str(
        "there is no command ",
        quoted(innermost == &app ? words.front() : innermost->get_name() + " " + words.front()),
        meant(words.front(), command_names(*innermost)), " (see ", command, " --help)");
  // A word that is not known comes before one that is missing: it may be that one, misspelt.
  const auto unknown = std::find_if(words.begin(), words.end(), [](const std::string& word) {
    return word.starts_with("--") && word.size() > 2;
  });
  std::string text = error.what();
  if (unknown != words.end()) {
    const std::string name = unknown->substr(0, unknown->find('='));
    text = str("there is no option ", printable(name, 64), meant(name, option_names(*innermost)));
  } else if (!words.empty() && innermost->get_subcommands({}).empty()) {
    const auto lists = innermost->get_options([](const CLI::Option* option) {
      return option->count() > 0 && option->get_delimiter() != '\0';
    });
    text = str(quoted(words.front(), 64), " is not expected here",
               lists.empty() ? "" : ": a list is one word, with commas between its values");
  }
  return str(text, " (see ", command, shows_more(*innermost) ? " --help-all)" : " --help)");
}

int run(int argc, char** argv, const std::string& version,
        const std::function<void(CLI::App&)>& add_commands) {
  CLI::App app("Profiles a language model's attention and calibrates KV-cache policies from it",
               "kvatlas");
  app.formatter(help_formatter());
  app.set_version_flag("--version", version);
  app.footer(
      "kvatlas COMMAND --help shows a command's options, defaults and examples.\n"
      "To begin: kvatlas inspect MODEL, then kvatlas profile --model MODEL -o p.h5.\n"
      "Long commands print an estimate first, and at the end what to do next.");
  add_commands(app);
  take_help_all(app);
  take_one_word_each(app);
  catch_interrupts();
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& success) {  // --help, --version
    return app.exit(success);
  } catch (const CLI::RuntimeError& verdict) {  // said already
    return verdict.get_exit_code();
  } catch (const CLI::ParseError& error) {
    return report(exit_status(ErrorCode::usage), usage_error(app, error));
  } catch (const Error& error) {
    if (error.code() != ErrorCode::cancelled || !can_go_on(*chosen_command(app).first)) throw;
    return report(exit_status(error.code()),
                  str(error.what(), ": the same command with --resume goes on from what is done"));
  }
  if (app.get_subcommands().empty()) std::cout << app.help();
  return 0;
}

}  // namespace

int run_program(int argc, char** argv, const std::string& version,
                const std::function<void(CLI::App&)>& add_commands) {
  try {
    const int status = run(argc, argv, version, add_commands);
    const bool ran = status == 0 || status == kExitNotMet;
    if (ran && !std::cout.flush())
      fail(ErrorCode::resource, "writing to standard output failed: ", std::strerror(errno));
    return status;
  } catch (const std::exception& thrown) {
    const Error error = as_error(thrown);
    return report(exit_status(error.code()), error.what());
  }
}

}  // namespace kvatlas
