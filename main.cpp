// SPDX-License-Identifier: Apache-2.0
// The command line: the list of commands, and the one place where a failure becomes an exit code.
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <iostream>
#include <new>
#include <string>
#include <unistd.h>
#include <vector>

#include <CLI/CLI.hpp>

#include "analyzer/capture/commands.hpp"
#include "analyzer/profile/commands.hpp"
#include "base/error.hpp"
#include "base/interrupt.hpp"
#include "base/str.hpp"
#include "calibrate/inspect/commands.hpp"
#include "calibrate/methods/commands.hpp"
#include "calibrate/search/commands.hpp"
#include "calibrate/search/run_trials.hpp"
#include "data/commands.hpp"
#include "export/commands.hpp"
#include "reference/reference.hpp"
#include "viewer/models/commands.hpp"

#ifndef KVATLAS_IS_VIEWER
#define KVATLAS_IS_VIEWER 0
#endif
#if KVATLAS_IS_VIEWER
#include "viewer/draw/pictures.hpp"
#else
#include "calibrate/runtimes/runtimes.hpp"
#endif

namespace {

#if KVATLAS_IS_VIEWER

void add_commands(CLI::App& app) {
  kvatlas::add_view_command(app);
  kvatlas::add_render_command(app);
  kvatlas::add_report_command(app);
}

kvatlas::reference::KnownValues known_values() {
  std::vector<std::string> pictures = {"list"}, colours;
  for (const auto& maker : kvatlas::viewer::picture_makers()) pictures.emplace_back(maker.what);
  for (const auto map : kvatlas::viewer::kColourMaps)
    if (!kvatlas::viewer::is_diverging(map))
      colours.emplace_back(kvatlas::viewer::colour_map_name(map));
  return {{"--what", pictures}, {"--colours", colours}};
}

#else

/// The viewer's commands are in a program of their own beside this one, so that neither loads the
/// other's libraries: this one becomes it.
void add_viewer_command(CLI::App& app, const std::string& name, const std::string& what) {
  CLI::App* command = app.add_subcommand(name, what);
  command->prefix_command();
  command->set_help_flag();
  command->callback([command, name] {
    const auto program =
        std::filesystem::read_symlink("/proc/self/exe").replace_filename("kvatlas-viewer");
    std::vector<std::string> words = {program.string(), name};
    for (const auto& word : command->remaining()) words.push_back(word);
    std::vector<char*> arguments;
    for (auto& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    execv(program.c_str(), arguments.data());
    if (errno != ENOENT)
      kvatlas::fail(kvatlas::ErrorCode::resource, program.string(),
                    " cannot be started: ", std::strerror(errno));
    kvatlas::fail(kvatlas::ErrorCode::unsupported, "'", name, "' needs ", program.string(),
                  ", which this build lacks: install Qt 6 (./dev setup) and run ./dev build");
  });
}

#if !KVATLAS_HAS_TORCH
/// A command that this build lacks: it is listed, and says what to do.
void add_missing_command(CLI::App& app, const std::string& name) {
  CLI::App* command = app.add_subcommand(name, "(not in this build: it needs LibTorch)");
  command->allow_extras();
  command->callback([name] {
    kvatlas::fail(kvatlas::ErrorCode::unsupported, "'", name,
                  "' needs LibTorch, which this build lacks: run ./dev setup and ./dev build");
  });
}
#endif

void add_commands(CLI::App& app) {
#if KVATLAS_HAS_TORCH
  kvatlas::add_profile_command(app);
  kvatlas::add_generate_command(app);
  kvatlas::add_evaluate_command(app);
  kvatlas::add_check_command(app);
  kvatlas::add_calibrate_command(app, kvatlas::calibrate::make_trials, kvatlas::add_auto_command);
#else
  kvatlas::add_calibrate_command(
      app, nullptr, [](CLI::App& calibrate) { add_missing_command(calibrate, "auto"); });
  for (const char* name : {"profile", "generate", "evaluate", "check"})
    add_missing_command(app, name);
#endif
  kvatlas::add_inspect_command(app, {kvatlas::calibrate::inspected_policies()});
  kvatlas::add_diff_command(app);
  kvatlas::add_export_command(app);
  kvatlas::add_import_command(app);
  kvatlas::add_merge_command(app);
  kvatlas::add_tasks_command(app);
  add_viewer_command(app, "view", "Look at profiles and policies in a window");
  add_viewer_command(app, "render", "Draw one chart or map to a PNG or SVG file, without a window");
  add_viewer_command(app, "report", "Make one HTML page of a profile and its policies");
}

kvatlas::reference::KnownValues known_values() {
  std::vector<std::string> runtimes;
  for (const auto& runtime : kvatlas::calibrate::runtimes()) runtimes.emplace_back(runtime.name);
  std::vector<std::string> or_all = runtimes;
  or_all.emplace_back("all");
  return {{"RUNTIME", runtimes},
          {"--to", or_all},
          {"--device", {"auto", "cpu", "cuda"}},
          {"--dtype", {"auto", "float32", "float16", "bfloat16"}},
          {"--chat", {"auto", "none", "chatml", "llama2", "llama3", "mistral", "phi3"}},
          {"--map-type", {"float16", "float32"}}};
}

#endif

/// NaN is in no range, but none refuses it.
void refuse_nan(CLI::App& app) {
  for (CLI::Option* option : app.get_options())
    if (option->get_type_name().find("FLOAT in [") != std::string::npos)
      option->check(
          [](const std::string& text) {
            return std::isnan(std::strtod(text.c_str(), nullptr)) ? "Value nan is no number" : "";
          },
          "");
  for (CLI::App* command : app.get_subcommands({})) refuse_nan(*command);
}

int report(int status, const std::string& text) {
  std::cerr << "kvatlas: " << kvatlas::without_controls(text, "\n") << '\n';
  return status;
}

/// What is wrong with the words of the command line, and where their right use is shown.
std::string usage_error(const CLI::App& app, const CLI::ParseError& error) {
  const auto chosen = app.get_subcommands();
  if (!chosen.empty())
    return kvatlas::str(error.what(), " (see kvatlas ", chosen.front()->get_name(), " --help)");
  const auto words = app.remaining();
  const bool is_command = !words.empty() && words.front().rfind('-', 0) != 0;
  return kvatlas::str(is_command ? "there is no command " + kvatlas::quoted(words.front())
                                 : std::string(error.what()),
                      " (see kvatlas --help)");
}

int run(int argc, char** argv) {
  CLI::App app("Profiles a language model's attention and calibrates KV-cache policies from it",
               "kvatlas");
  app.set_version_flag("--version", "kvatlas " KVATLAS_VERSION);
  app.footer("kvatlas COMMAND --help shows a command's options, defaults and examples.");
  add_commands(app);
  kvatlas::reference::add_reference_command(app, KVATLAS_VERSION, known_values());
  refuse_nan(app);
  kvatlas::catch_interrupts();
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& success) {  // --help, --version
    return app.exit(success);
  } catch (const CLI::RuntimeError& verdict) {  // said already
    return verdict.get_exit_code();
  } catch (const CLI::ParseError& error) {
    return report(kvatlas::exit_status(kvatlas::ErrorCode::usage), usage_error(app, error));
  }
  if (app.get_subcommands().empty()) std::cout << app.help();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  using kvatlas::ErrorCode;
  using kvatlas::exit_status;
  try {
    const int status = run(argc, argv);
    if (status == 0 && !std::cout.flush())
      kvatlas::fail(ErrorCode::resource, "writing the result failed");
    return status;
  } catch (const kvatlas::Error& error) {
    return report(exit_status(error.code()), error.what());
  } catch (const std::bad_alloc&) {
    return report(exit_status(ErrorCode::resource), "not enough memory");
  } catch (const std::exception& error) {
    const std::string text = error.what();  // LibTorch's go on with a list of calls
    return report(exit_status(ErrorCode::internal),
                  "internal error: " + text.substr(0, text.find('\n')));
  }
}
