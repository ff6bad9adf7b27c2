// SPDX-License-Identifier: Apache-2.0
// The program kvatlas: the list of its commands. It is compiled twice. kvatlas itself begins
// without LibTorch and becomes kvatlas-engine for the commands that may run a model; kvatlas-engine
// (KVATLAS_ENGINE) has all of them.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <string_view>
#include <unistd.h>
#include <vector>

#include <CLI/CLI.hpp>

#include "analyzer/capture/commands.hpp"
#include "analyzer/jinja/chat.hpp"
#include "analyzer/profile/commands.hpp"
#include "base/error.hpp"
#include "base/program.hpp"
#include "base/surroundings.hpp"
#include "calibrate/certify/commands.hpp"
#include "calibrate/inspect/commands.hpp"
#include "calibrate/methods/commands.hpp"
#include "calibrate/runtimes/runtimes.hpp"
#include "calibrate/search/commands.hpp"
#include "calibrate/search/run_trials.hpp"
#include "data/commands.hpp"
#include "export/commands.hpp"
#include "reference/doctor.hpp"
#include "reference/reference.hpp"
#include "viewer/models/viewer_commands.hpp"

namespace {

/// Becomes another program, with the same words. It lies beside this one, so that none loads the
/// libraries of the others. `remedy`: what to do where it is missing.
[[noreturn]] void become(const char* name, char** argv, const char* remedy) {
  const auto program = kvatlas::program_folder() / name;
  execv(program.c_str(), argv);
  if (errno != ENOENT)
    kvatlas::fail(kvatlas::ErrorCode::resource, program.string(),
                  " cannot be started: ", std::strerror(errno));
  kvatlas::fail(kvatlas::ErrorCode::unsupported, "'", argv[1], "' needs ", program.string(),
                ", which ", remedy);
}

#if !KVATLAS_ENGINE
constexpr const char* kEngineProgram = "kvatlas-engine";

struct EngineCommand {
  const char *name, *summary;
};
constexpr EngineCommand kOfEngine[] = {{"profile", kvatlas::kProfileSummary},
                                       {"generate", kvatlas::kGenerateSummary},
                                       {"evaluate", kvatlas::kEvaluateSummary},
                                       {"check", kvatlas::kCheckSummary},
                                       {"calibrate", kvatlas::kCalibrateSummary}};

/// Also what prints the options of all commands, which the engine alone knows.
bool is_of_engine(std::string_view word) {
  return word == "reference" ||
         std::ranges::any_of(kOfEngine, [&](const auto& command) { return word == command.name; });
}

[[noreturn]] void become_engine(char** argv) {
  kvatlas::let_threads_sleep();
  become(kEngineProgram, argv, "is a part of this program: install it anew, or run ./dev build");
}
#elif !KVATLAS_HAS_TORCH
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

void add_commands(CLI::App& app, char** argv) {
#if !KVATLAS_ENGINE
  for (const auto& [name, summary] : kOfEngine) app.add_subcommand(name, summary);
#elif KVATLAS_HAS_TORCH
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
  kvatlas::add_certify_command(app);
  kvatlas::add_inspect_command(app, {kvatlas::calibrate::inspected_policies()},
                               kvatlas::calibrate::caches_of_sequences());
  kvatlas::add_diff_command(app);
  kvatlas::add_export_command(app);
  kvatlas::add_import_command(app);
  kvatlas::add_merge_command(app);
  kvatlas::add_tasks_command(app);
  const auto start = [argv](const auto&) {
    become(kvatlas::kViewerProgram, argv,
           "this build lacks: install Qt 6 (./dev setup) and run ./dev build");
  };
  kvatlas::viewer::add_viewer_commands(app, {.view = start, .render = start, .report = start});
}

#if KVATLAS_ENGINE
kvatlas::reference::KnownValues known_values() {
  std::vector<std::string> runtimes;
  for (const auto& runtime : kvatlas::calibrate::runtimes()) runtimes.emplace_back(runtime.name);
  std::vector<std::string> or_all = runtimes;
  or_all.emplace_back("all");
  std::vector<std::string> chats = {"auto"};
  for (auto& format : kvatlas::model::Chat::format_names()) chats.push_back(std::move(format));
  return {{"RUNTIME", runtimes},
          {"--to", or_all},
          {"--device", {"auto", "cpu", "cuda"}},
          {"--dtype", {"auto", "float32", "float16", "bfloat16"}},
          {"--chat", chats},
          {"--map-type", {"uint8", "float16", "float32"}},
          {"--what", kvatlas::viewer::known_pictures()},
          {"--colours", kvatlas::viewer::known_colours()}};
}
#endif

}  // namespace

int main(int argc, char** argv) {
  const kvatlas::reference::Build build = {KVATLAS_VERSION, KVATLAS_COMMIT, KVATLAS_TORCH_VERSION,
                                           KVATLAS_CUDA_VERSION};
  return kvatlas::run_program(argc, argv, version_text(build), [=, &build](CLI::App& app) {
#if !KVATLAS_ENGINE
    if (argc > 1 && is_of_engine(argv[1])) become_engine(argv);
#endif
    add_commands(app, argv);
    kvatlas::reference::add_doctor_command(app, build);
#if KVATLAS_ENGINE
    kvatlas::reference::add_reference_command(app, KVATLAS_VERSION, known_values());
#else
    app.add_subcommand("reference", kvatlas::reference::kReferenceSummary);
#endif
  });
}
