// SPDX-License-Identifier: Apache-2.0
// `kvatlas check`: a gate for releases.
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <memory>

#include "base/error.hpp"
#include "base/exit_codes.hpp"
#include "base/markup.hpp"
#include "base/options.hpp"
#include "base/text_count.hpp"
#include "base/whole_file.hpp"
#include "calibrate/rules/evidence.hpp"
#include "calibrate/search/commands.hpp"
#include "calibrate/search/evaluate_request.hpp"

namespace kvatlas {
namespace {

using namespace calibrate;
using nlohmann::json;

struct CheckCommand {
  EvaluateRequest request;
  std::string document, junit;
  double max_loss = 1;
  bool surely = false, as_json = false, force = false;
};

/// One policy of the document.
struct Verdict {
  Summary summary;
  bool passed = false;
  std::string line;
};

Verdict verdict_of(const Summary& summary, const CheckCommand& command) {
  Verdict verdict{summary, false, ""};
  const double judged = command.surely ? summary.loss.high : summary.loss.mean;
  verdict.passed = judged <= command.max_loss;
  verdict.line =
      str(verdict.passed ? "passed" : "FAILED", ": ", printable(summary.policy, 200), " loses ",
          estimate_text(summary.loss, 1), " points on ", summary.scored, " prompts",
          of_texts(summary.scored, summary.texts), ", at most ", fixed_text(command.max_loss, 1),
          " allowed", command.surely ? " (the whole interval)" : "");
  return verdict;
}

/// JUnit's format, a test case a policy.
std::string junit_text(const std::vector<Verdict>& verdicts, const std::string& document) {
  std::size_t failures = 0;
  std::string cases;
  for (const auto& verdict : verdicts) {
    cases += str("    <testcase classname=\"", markup_text(printable(document, 400)), "\" name=\"",
                 markup_text(printable(verdict.summary.policy, 200)), "\"");
    if (verdict.passed) {
      cases += "/>\n";
      continue;
    }
    ++failures;
    cases +=
        str(">\n      <failure message=\"", markup_text(verdict.line), "\"/>\n    </testcase>\n");
  }
  const std::string counts = str(" tests=\"", verdicts.size(), "\" failures=\"", failures, "\"");
  return str("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites", counts,
             ">\n  <testsuite name=\"kvatlas check\"", counts, ">\n", cases,
             "  </testsuite>\n</testsuites>\n");
}

json verdicts_json(const std::vector<Verdict>& verdicts, const CheckCommand& command, bool passed) {
  json out = {{"document", command.document},
              {"passed", passed},
              {"max_loss_points", command.max_loss},
              {"surely", command.surely},
              {"policies", json::array()}};
  if (!command.request.runtime.empty()) out["runtime"] = command.request.runtime;
  for (const auto& verdict : verdicts) {
    json one = measured_json(verdict.summary);
    one["policy"] = verdict.summary.policy;
    one["passed"] = verdict.passed;
    out["policies"].push_back(std::move(one));
  }
  return out;
}

void run_check(CheckCommand command) {
  if (!is_policy_document(command.document))
    fail(ErrorCode::usage, quoted(command.document, 400), " is no policy document");
  if (!command.junit.empty() && std::filesystem::is_directory(command.junit))
    fail(ErrorCode::usage, quoted(command.junit, 400), " is a folder, --junit writes a file");
  command.request.policies = {command.document};
  command.request.time_steps = 0;
  command.request.no_comparison = true;
  const auto [model, policies, evaluation] = evaluate_request(command.request);
  require_all(evaluation);
  if (policies.empty())
    fail(ErrorCode::usage, "the document holds the full cache alone: nothing is to be checked");
  const auto rows = summarise(evaluation);
  if (rows.front().scored == 0)
    fail(ErrorCode::usage, "no prompt has answers: without scores there is nothing to judge by");
  Calibrated forced;
  require_samples({rows.front().scored, rows.front().texts}, "with answers", command.force, forced);
  require_score(rows.front().score.mean, command.force, forced);
  for (const auto& note : forced.notes) std::cerr << "kvatlas: note: " << note << '\n';

  std::vector<Verdict> verdicts;
  for (std::size_t i = 1; i < rows.size(); ++i) verdicts.push_back(verdict_of(rows[i], command));
  const bool passed = std::all_of(verdicts.begin(), verdicts.end(),
                                  [](const Verdict& verdict) { return verdict.passed; });
  // A gate runs again and again: its report replaces the last one.
  if (!command.junit.empty())
    write_whole(junit_text(verdicts, command.document), command.junit, true);
  if (command.as_json)
    std::cout << canonical_json(verdicts_json(verdicts, command, passed));
  else
    for (const auto& verdict : verdicts) std::cout << verdict.line << '\n';
  print_notes(evaluation);
  if (!passed) throw CLI::RuntimeError(kExitNotMet);
}

}  // namespace

void add_check_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "check", "A gate: does a policy still lose no more than it may on the model?");
  const auto options = std::make_shared<CheckCommand>();
  CheckCommand& o = *options;
  add_option(*command, "policy", o.document, "FILE",
             "the policy document; each of its policies is judged")
      ->required();
  add_request_options(*command, o.request);
  add_number(*command, "--max-loss", o.max_loss, "POINTS", "points of the score that may be lost",
             -100.0, 100.0);
  command->add_flag("--surely", o.surely,
                    "the upper end of the 95 % interval must be within it, not the mean alone");
  command->add_flag("--json", o.as_json, "print the verdict as JSON");
  add_option(*command, "--junit", o.junit, "FILE", "write it as JUnit XML, replacing the file");
  command->add_flag("--force", o.force,
                    "judge by fewer than 5 samples, or where the full cache scores below 0.5");
  command->footer(
      "Exit status: 0 passed, 4 a policy loses too much; others are failures.\n\n"
      "Examples:\n"
      "  kvatlas check policy.json --model M --task needle --lengths 2048 --seeds 10 --max-loss 1\n"
      "  kvatlas check policy.json --model M --prompts qa.jsonl --as vllm --junit verdict.xml");
  command->callback([options] { run_check(*options); });
}

}  // namespace kvatlas
