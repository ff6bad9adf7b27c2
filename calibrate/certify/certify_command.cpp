// SPDX-License-Identifier: Apache-2.0
// `kvatlas certify`: a gate for result files that other tools wrote.
#include <cmath>
#include <iostream>
#include <memory>

#include "base/error.hpp"
#include "base/exit_codes.hpp"
#include "base/foreign_error.hpp"
#include "base/next_step.hpp"
#include "base/options.hpp"
#include "base/plain_text.hpp"
#include "base/whole_file.hpp"
#include "calibrate/certify/commands.hpp"
#include "calibrate/certify/pairing.hpp"
#include "calibrate/policy/policy.hpp"
#include "calibrate/rules/evidence.hpp"

namespace kvatlas {
namespace {

using namespace calibrate;

struct CertifyCommand {
  std::vector<std::string> compressed, full;
  ReadRequest read;
  std::vector<double> range;
  Gate gate;
  std::string junit;
  bool as_json = false, force = false;
};

void say(const std::vector<std::string>& notes, const std::string& place = {}) {
  for (const auto& note : notes)
    std::cerr << "kvatlas: note: " << (place.empty() ? "" : printable(place, 200) + ": ") << note
              << '\n';
}

bool are_totals(const std::vector<ResultFile>& run) { return run.front().answers.empty(); }

/// The verdict of one compressed run.
GateVerdict verdict_of(const std::string& name, const std::vector<ResultFile>& full,
                       const std::vector<ResultFile>& compressed, const CertifyCommand& command) {
  say(doubts_of(compressed));
  if (are_totals(full) != are_totals(compressed))
    fail(ErrorCode::usage,
         "one run has its answers one by one, the other totals alone: give both "
         "in the same form");
  if (are_totals(full)) {
    say({"totals alone: that both runs answered the same prompts is not used, so the interval is "
         "wider than that of single answers"},
        name);
    return judge_totals(name, full, compressed, command.gate);
  }
  PairRequest request{std::nullopt, command.force};
  if (!command.range.empty()) request.range = ValueRange{command.range[0], command.range[1]};
  const PairedRuns paired = pair_runs(full, compressed, request);
  say(paired.notes, name);
  std::vector<double> scores;
  std::vector<std::string> groups, tasks;
  for (const auto& pair : paired.pairs) {
    scores.push_back(pair.full);
    groups.push_back(pair.task + '\n' + pair.group);
    tasks.push_back(pair.task);
  }
  GateVerdict verdict = judge_pairs(name, paired.pairs, command.gate);
  require_gate_texts(scores.size(), static_cast<std::size_t>(verdict.measured.texts), command.force,
                     "a benchmark with more prompts");
  // Of a range of one's own nobody knows what is low.
  if (!request.range) require_gate_score(scores, groups, tasks, command.force);
  return verdict;
}

std::vector<GateVerdict> verdicts_of(const CertifyCommand& command) {
  std::vector<ResultFile> full;
  for (const auto& path : command.full)
    for (auto& file : read_results(path, command.read)) full.push_back(std::move(file));
  say(doubts_of(full));
  std::vector<GateVerdict> verdicts;
  for (const auto& path : command.compressed)
    verdicts.push_back(in_context(printable(path, 400), [&] {
      return verdict_of(path, full, read_results(path, command.read), command);
    }));
  return verdicts;
}

void print(const std::vector<GateVerdict>& verdicts, const CertifyCommand& command) {
  if (command.as_json) {
    auto out = verdicts_json(verdicts, {}, command.gate);
    out["full"] = command.full;
    std::cout << canonical_json(out);
    return;
  }
  for (const auto& verdict : verdicts)
    if (verdict.measured.tasks.size() > 1)
      std::cout << table_text(measured_table(printable(verdict.name, 200), verdict.measured))
                << '\n';
  for (const auto& verdict : verdicts) std::cout << line_of(verdict, command.gate) << '\n';
}

void run_certify(CertifyCommand command) {
  if (!command.range.empty() &&
      !(command.range[0] < command.range[1] && std::isfinite(command.range[1] - command.range[0])))
    fail(ErrorCode::usage, "--range ", command.range[0], ',', command.range[1],
         ": expected the least score and the greatest, as in --range 0,10");
  command.gate.command = "certify";
  command.gate.subject = join(command.full);
  command.gate.one = "run";
  command.gate.many = "runs";
  command.gate.confidence = jointly_sure(command.compressed.size());
  if (!command.junit.empty()) prepare_junit(command.junit, true);
  std::vector<GateVerdict> verdicts;
  try {
    verdicts = verdicts_of(command);
  } catch (const std::exception& thrown) {
    std::vector<LeftOut> left_out;
    for (const auto& path : command.compressed) left_out.push_back({path, as_error(thrown).what()});
    if (!command.junit.empty())
      write_whole(junit_text({}, left_out, true, command.gate), command.junit, true);
    throw;
  }
  if (!command.junit.empty())
    write_whole(junit_text(verdicts, {}, false, command.gate), command.junit, true);
  print(verdicts, command);
  const std::string verdict = verdict_of_all(verdicts);
  if (verdict == "undecided")
    say_next({{"the same command on a longer benchmark, or with a larger --max-loss",
               "more texts decide it"}});
  if (verdict != "passed") throw CLI::RuntimeError(kExitNotMet);
}

}  // namespace

void add_certify_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "certify",
      "Judge result files of other tools: whether a compressed cache loses no more than it may");
  const auto options = std::make_shared<CertifyCommand>();
  CertifyCommand& o = *options;
  add_option(*command, "compressed", o.compressed, "COMPRESSED",
             "result files of runs with compressed caches; a folder is one run of several tasks")
      ->required();
  add_option(*command, "--full", o.full, "FULL",
             "the result file, files or folder of the run with the full cache")
      ->required();
  add_number(*command, "--max-loss", o.gate.max_loss, "POINTS",
             "points of the score, hundredths of its range, that may be lost", 0.0, 100.0);
  std::vector<std::string> names;
  for (const auto& format : result_formats()) names.emplace_back(format.name);
  add_option(*command, "--format", o.read.format, "FORMAT",
             "the files' format, if it is not to be recognised from what they hold")
      ->check(CLI::IsMember(names));
  add_option(*command, "--metric", o.read.metric, "NAME",
             "the metric that is judged, where files have several or answers alone");
  add_option(*command, "--filter", o.read.filter, "NAME",
             "lm-eval's filter, where files have several");
  add_option(*command, "--group", o.read.group, "MEMBER",
             "the member that says which prompts are made of one text, as in doc.subject");
  command->add_option("--range", o.range, "the least and the greatest score that there can be")
      ->type_name("A,B")
      ->delimiter(',')
      ->expected(2);
  command->add_flag("--by-mean", o.gate.by_mean,
                    "judge by the mean loss alone, however few prompts there are");
  command->add_flag("--json", o.as_json, "print the verdict as JSON");
  add_option(*command, "--junit", o.junit, "FILE",
             "write the verdict as JUnit XML; the file is replaced if it exists");
  command->add_flag(
      "--force", o.force,
      "also judge prompts that one run lacks or that cannot be told apart, fewer than "
      "5 texts, or a full cache that scores below 0.5");
  command->footer(
      "Exit status: 0 passed, 4 a run loses too much or is undecided; others are failures.\n\n"
      "Examples:\n"
      "  kvatlas certify kv4/samples_gsm8k.jsonl --full f16/samples_gsm8k.jsonl --metric "
      "exact_match --filter strict-match --max-loss 2\n"
      "  kvatlas certify snapkv/predictions.csv --full no_press/predictions.csv --max-loss 5\n"
      "  kvatlas certify pred/kv4 pred/kv2 --full pred/full --max-loss 3 --junit verdict.xml");
  command->callback([options] { run_certify(*options); });
}

}  // namespace kvatlas
