// SPDX-License-Identifier: Apache-2.0
#include <filesystem>
#include <iostream>
#include <memory>

#include "base/error.hpp"
#include "base/exit_codes.hpp"
#include "base/options.hpp"
#include "calibrate/inspect/commands.hpp"
#include "calibrate/inspect/diff.hpp"

namespace kvatlas {
namespace {

using namespace calibrate;

struct DiffCommand {
  std::string first, second;
  bool as_json = false, all = false, exit_code = false;
};

/// What differs between two files of one kind.
Diff diff_files(const DiffCommand& command) {
  for (const auto& path : {command.first, command.second})
    if (!std::filesystem::exists(path))
      fail(ErrorCode::unreadable, "there is no file ", quoted(path, 400));
  const bool first = profile::is_profile(command.first);
  if (first != profile::is_profile(command.second))
    fail(ErrorCode::usage, quoted(command.first, 400), " is a ", first ? "profile" : "policy",
         " and ", quoted(command.second, 400), " is a ", first ? "policy" : "profile",
         ": give two profiles or two policy documents");
  if (!first) return diff_documents(read_document(command.first), read_document(command.second));
  const profile::Reader a(command.first), b(command.second);
  return diff_profiles(a, b);
}

void run_diff(const DiffCommand& command) {
  const Diff diff = diff_files(command);
  if (command.as_json) {
    std::cout << canonical_json(diff_json(diff));
  } else {
    std::cout << table_text(diff_table(diff, command.all ? diff.changes.size() : 30));
    for (const auto& note : diff.notes) std::cerr << "kvatlas: note: " << note << '\n';
    if (diff.compared > 0)
      std::cerr << "kvatlas: note: " << diff.compared
                << " figures were compared by their 95 % intervals: about "
                << (diff.compared + 10) / 20 << " of them differ so by chance alone\n";
  }
  if (command.exit_code && !diff.changes.empty()) throw CLI::RuntimeError(kExitNotMet);
}

}  // namespace

void add_diff_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "diff", "Show what changed between two profiles or two policies, the largest change first");
  const auto options = std::make_shared<DiffCommand>();
  add_option(*command, "first", options->first, "FILE", "a profile or a policy document")
      ->required();
  add_option(*command, "second", options->second, "FILE", "the one to compare it with")->required();
  command->add_flag("--json", options->as_json, "print JSON");
  command->add_flag("--all", options->all, "print every change, not the 30 largest");
  command->add_flag("--exit-code", options->exit_code, "exit with 4 where something changed");
  command->footer(
      "Figures count as changed where their difference lies beyond its 95 % interval.\n\n"
      "Examples:\n"
      "  kvatlas diff before.h5 after.h5\n"
      "  kvatlas diff release-1/policy.json policy.json --json");
  command->callback([options] { run_diff(*options); });
}

}  // namespace kvatlas
