// SPDX-License-Identifier: Apache-2.0
// The command `kvatlas report`.
#include <filesystem>
#include <iostream>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/str.hpp"
#include "base/whole_file.hpp"
#include "calibrate/policy/policy.hpp"
#include "calibrate/rules/policy_reports.hpp"
#include "viewer/draw/commands.hpp"
#include "viewer/draw/headless.hpp"
#include "viewer/draw/report.hpp"
#include "viewer/methods/choices_document.hpp"

namespace kvatlas::viewer {

void run_report(const ReportOptions& options) {
  if (options.files.empty())
    fail(ErrorCode::usage, "report needs a profile, and the policy documents made from it");
  if (options.output.empty()) fail(ErrorCode::usage, "-o is missing: the page to write");
  check_output(options.output, options.force);
  ReportRequest request;
  request.title = options.title;
  request.colours = colour_map_named(options.colours);
  const OpenedFiles files = open_files(options.files);
  if (files.baseline)
    fail(ErrorCode::usage,
         "report takes one profile: 'kvatlas render --what difference' compares two");
  const profile::Reader& profile = files.source.required_profile();
  const std::string fingerprint = calibrate::profile_fingerprint(profile);
  for (std::size_t i = 0; i < files.source.documents.size(); ++i)
    if (const auto& from = files.source.documents[i].provenance.profile;
        !from.empty() && from != fingerprint)
      std::cerr << "kvatlas: note: " << files.source.document_paths[i].string()
                << " was made from another profile: its settings are shown on this one's "
                   "statistics, and what it measured is of the other's prompts\n";
  auto& pictures = request.pictures;
  pictures.choices = initial_choices(profile.header(), profile.samples(), files.source.documents);
  pictures.choices.task = options.task;
  pictures.positions = sample_positions(profile, options.task);
  if (options.length > 0) set_length(pictures.choices, options.length);
  const Headless headless;
  const std::string page = report_html(files, request);
  profile.require_all_read();
  write_whole(page, options.output, options.force);
  std::cout << options.output.string() << '\n';
}

}  // namespace kvatlas::viewer
