// SPDX-License-Identifier: Apache-2.0
// The command `kvatlas report`.
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "base/error.hpp"
#include "base/str.hpp"
#include "calibrate/policy/policy.hpp"
#include "calibrate/policy/policy_files.hpp"
#include "viewer/draw/headless.hpp"
#include "viewer/draw/report.hpp"
#include "viewer/models/commands.hpp"

namespace kvatlas {

namespace {

using namespace viewer;

struct Options {
  std::vector<std::filesystem::path> files;
  std::filesystem::path output;
  std::string title, task, colours = "viridis";
  std::int64_t length = 0;
  bool force = false;
};

void run_report(const Options& options) {
  if (options.files.empty())
    fail(ErrorCode::usage, "report needs a profile, and the policy documents made from it");
  if (options.output.empty()) fail(ErrorCode::usage, "-o is missing: the page to write");
  if (!options.force && std::filesystem::exists(options.output))
    calibrate::fail_exists(options.output);
  ReportRequest request;
  request.title = options.title;
  request.colours = colour_map_named(options.colours);
  const OpenedFiles files = open_files(options.files);
  if (files.baseline)
    fail(ErrorCode::usage,
         "report takes one profile: 'kvatlas render --what difference' compares two");
  const profile::Reader& profile = files.source.required_profile();
  auto& pictures = request.pictures;
  pictures.choices = initial_choices(profile.header(), profile.samples(), files.source.documents);
  pictures.choices.task = options.task;
  pictures.positions = sample_positions(profile, options.task);
  if (options.length > 0) set_length(pictures.choices, options.length);
  const Headless headless;
  calibrate::write_whole(report_html(files, request), options.output, options.force);
  std::cout << options.output.string() << '\n';
}

}  // namespace

void add_report_command(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("report", "Make one HTML page of a profile and its policies");
  const auto options = std::make_shared<Options>();
  command
      ->add_option("files", options->files,
                   "a profile (.h5) and the documents made from it (.json)")
      ->type_name("FILE");
  command->add_option("-o,--output", options->output, "the page to write")->type_name("FILE");
  command->add_flag("--force", options->force, "replace a file that exists");
  command->add_option("--title", options->title, "heading [the model's name]")->type_name("TEXT");
  command->add_option("--task", options->task, "samples of this task [all]")->type_name("NAME");
  command
      ->add_option("--length", options->length, "prompt tokens that savings are for [the longest]")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 24))
      ->type_name("N");
  command->add_option("--colours,--colors", options->colours, "viridis, cividis, magma or grey")
      ->capture_default_str();
  command->footer(
      "The page needs nothing else: no script, no network; it follows the reader's light or dark.\n"
      "\nExample:\n  kvatlas report p.h5 policy.json -o report.html");
  command->callback([options] { run_report(*options); });
}

}  // namespace kvatlas
