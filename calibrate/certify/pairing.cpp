// SPDX-License-Identifier: Apache-2.0
#include "calibrate/certify/pairing.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "base/error.hpp"
#include "base/plain_text.hpp"
#include "base/text_count.hpp"
#include "calibrate/rules/calibrated.hpp"
#include "calibrate/rules/rules.hpp"

namespace kvatlas::calibrate {
namespace {

/// All that a run says of one prompt.
struct Asked {
  const Answer* first = nullptr;
  double sum = 0;
  std::size_t count = 0;
  double mean() const { return sum / static_cast<double>(count); }
};
using Prompts = std::map<std::pair<std::string, std::string>, Asked>;  // by task and key

struct Run {
  Prompts prompts;
  std::map<std::string, std::string> metrics;  // of the tasks
  std::map<std::string, std::map<std::string, std::string>> settings;
  std::size_t doubtful = 0;  // keys that stand for several prompts
};

void require_range(const Answer& answer, const ResultFile& file, const PairRequest& request) {
  const ValueRange range = request.range.value_or(kScoreRange);
  if (answer.score >= range.least && answer.score <= range.most) return;
  fail(ErrorCode::usage, answer.where, ": scores ", answer.score, " by ",
       quoted(file.metric.empty() ? "its metric" : file.metric), ", which is not between ",
       range.least, " and ", range.most,
       request.range ? ", as --range says"
                     : ": an interval needs the range of its scores (--range A,B)");
}

Run run_of(std::span<const ResultFile> files, const PairRequest& request) {
  Run run;
  std::map<std::string, const ResultFile*> file_of_task;
  for (const auto& file : files) {
    std::set<std::string> doubtful;
    for (const auto& answer : file.answers) {
      require_range(answer, file, request);
      const auto [of_task, is_new_task] = file_of_task.emplace(answer.task, &file);
      if (!is_new_task && of_task->second != &file)
        fail(ErrorCode::usage, printable(file.path, 400), ": is of the task ", quoted(answer.task),
             " as ", printable(of_task->second->path, 400), " is: name the file of one run");
      auto [at, is_new] = run.prompts.try_emplace({answer.task, answer.key});
      Asked& asked = at->second;
      if (is_new) {
        asked.first = &answer;
      } else if (file.same_key == SameKey::mistake) {
        fail(ErrorCode::unreadable, answer.where, ": the prompt ", quoted(answer.key),
             " stands at ", asked.first->where, " already");
      } else if (file.same_key == SameKey::ambiguous) {
        if (!request.force)
          fail(ErrorCode::usage, answer.where, ": cannot be told from ", asked.first->where,
               ", because ", file.format,
               " writes no ids and both have the same answers and length (--force takes them for "
               "one text)");
        doubtful.insert(answer.key);
      }
      asked.sum += answer.score;
      ++asked.count;
      run.metrics[answer.task] = file.metric;
      run.settings[answer.task] = file.settings;
    }
    run.doubtful += doubtful.size();
  }
  return run;
}

std::vector<std::string> tasks_of(const Run& run) {
  std::vector<std::string> tasks;
  for (const auto& [task, metric] : run.metrics) tasks.push_back(task);
  return tasks;
}

/// If both runs are of one task, their files need not agree on its name.
void take_name(Run& compressed, const Run& full) {
  const auto from = tasks_of(compressed), to = tasks_of(full);
  if (from.size() != 1 || to.size() != 1 || from == to) return;
  Prompts renamed;
  for (auto& [name, asked] : compressed.prompts) renamed[{to.front(), name.second}] = asked;
  compressed.prompts = std::move(renamed);
  compressed.metrics = {{to.front(), compressed.metrics.begin()->second}};
  compressed.settings = {{to.front(), compressed.settings.begin()->second}};
}

void require_alike(const Run& full, const Run& compressed) {
  for (const auto& [task, metric] : full.metrics) {
    const auto of_other = compressed.metrics.find(task);
    if (of_other == compressed.metrics.end()) continue;
    if (of_other->second != metric)
      fail(ErrorCode::usage, "the task ", quoted(task), " is scored by ", quoted(metric),
           " with the full cache and by ", quoted(of_other->second),
           " with the compressed one: choose one with --metric and --filter");
    const auto& settings = full.settings.at(task);
    const auto& others = compressed.settings.at(task);
    for (const auto& [name, value] : settings) {
      const auto other = others.find(name);
      if (other != others.end() && other->second != value)
        fail(ErrorCode::usage, "the runs are not of the same prompts: ", quoted(name), " is ",
             quoted(value), " with the full cache and ", quoted(other->second),
             " with the compressed one");
    }
  }
}

std::string some_of(const std::vector<const Answer*>& answers) {
  constexpr std::size_t kMostShown = 3;
  const auto shown = std::span(answers).first(std::min(kMostShown, answers.size()));
  return join(shown, ", ", [](const Answer* answer) { return answer->where; }) +
         (answers.size() > kMostShown ? ", …" : "");
}

void require_both_sides(const std::vector<const Answer*>& full_alone,
                        const std::vector<const Answer*>& compressed_alone, std::size_t pairs) {
  if (full_alone.empty() && compressed_alone.empty()) return;
  const auto count = [](const auto& list) {
    return count_of(std::ssize(list), "prompt", "prompts");
  };
  std::string text = str("the runs are not of the same prompts: ", pairs, " are in both");
  if (!full_alone.empty())
    text += str(", ", count(full_alone), " in the full one alone (", some_of(full_alone), ")");
  if (!compressed_alone.empty())
    text += str(", ", count(compressed_alone), " in the compressed one alone (",
                some_of(compressed_alone), ")");
  fail(ErrorCode::usage, text,
       "; --force scores nothing where the compressed run has no answer, and leaves out where the "
       "full one has none");
}

}  // namespace

PairedRuns pair_runs(std::span<const ResultFile> full_files,
                     std::span<const ResultFile> compressed_files, const PairRequest& request) {
  const Run full = run_of(full_files, request);
  Run compressed = run_of(compressed_files, request);
  if (full_files.front().format != compressed_files.front().format)
    fail(ErrorCode::usage, "the full run is a file of ", full_files.front().format,
         ", the compressed one of ", compressed_files.front().format,
         ": the same tool must have judged both");
  take_name(compressed, full);
  require_alike(full, compressed);

  PairedRuns out;
  const ValueRange range = request.range.value_or(kScoreRange);
  const auto share_of = [&](double score) {
    return (score - range.least) / (range.most - range.least);
  };
  std::vector<const Answer*> full_alone, compressed_alone;
  bool texts_known = true, repeats_differ = false;
  for (const auto& [name, asked] : full.prompts) {
    const Answer& answer = *asked.first;
    ScorePair pair;
    pair.task = answer.task;
    pair.group = !answer.group.empty()  ? "group " + answer.group
                 : !answer.text.empty() ? "text " + answer.text
                                        : answer.key;
    texts_known = texts_known && (!answer.group.empty() || !answer.text.empty());
    pair.full = share_of(asked.mean());
    const auto other = compressed.prompts.find(name);
    if (other == compressed.prompts.end()) {
      full_alone.push_back(&answer);
    } else {
      const Answer& of_other = *other->second.first;
      if (!answer.same.empty() && !of_other.same.empty() && answer.same != of_other.same)
        fail(ErrorCode::usage, of_other.where, ": is of another prompt than ", answer.where,
             " of the full run, though both are called ", quoted(answer.key),
             ": the runs must ask the same");
      repeats_differ = repeats_differ || other->second.count != asked.count;
      pair.score = share_of(other->second.mean());
    }
    out.pairs.push_back(std::move(pair));
  }
  for (const auto& [name, asked] : compressed.prompts)
    if (!full.prompts.contains(name)) compressed_alone.push_back(asked.first);
  out.failed = full_alone.size();
  out.left_out = compressed_alone.size();
  const std::size_t both = out.pairs.size() - out.failed;
  if (both == 0 || !request.force) require_both_sides(full_alone, compressed_alone, both);
  if (out.failed > 0)
    out.notes.push_back(str(count_of(std::ssize(full_alone), "prompt", "prompts"),
                            " without an answer of the compressed run: they score nothing there"));
  if (out.left_out > 0)
    out.notes.push_back(str(count_of(std::ssize(compressed_alone), "prompt", "prompts"),
                            " without an answer of the full run: left out"));
  if (full.doubtful > 0 || compressed.doubtful > 0)
    out.notes.push_back(str(std::max(full.doubtful, compressed.doubtful),
                            " times several prompts cannot be told apart: each time they are one "
                            "text, whose score is their mean"));
  if (repeats_differ)
    out.notes.emplace_back(
        "prompts were asked more often of one run than of the other: the mean "
        "of what there is counts");
  if (!texts_known)
    out.notes.emplace_back(
        "the files do not say which prompts are made of one text, so each counts "
        "as its own; if some share a text, the interval is too narrow (--group "
        "names the member that tells)");
  if (std::all_of(out.pairs.begin(), out.pairs.end(),
                  [](const ScorePair& pair) { return pair.full == pair.score; }))
    out.notes.emplace_back(
        "both runs score the same on every prompt: nothing here shows that "
        "compression ran at all");
  put_in_hashed_order(out.pairs);
  return out;
}

std::vector<std::string> doubts_of(std::span<const ResultFile> run) {
  std::vector<std::string> out;
  for (const auto& file : run) {
    for (const auto& [name, value] : file.settings)
      if (name == "status")
        out.push_back(str(printable(file.path, 200), ": the run ended as ", quoted(value)));
    for (const auto& own : file.own_means) {
      std::vector<double> scores;
      for (const auto& answer : file.answers)
        if (answer.task == own.task) scores.push_back(answer.score);
      if (scores.empty()) continue;
      const double mean = mean_of(scores);
      if (std::abs(mean - own.mean) <= own.rounding) continue;
      out.push_back(str(printable(file.path, 200), ": the tool's own mean of ", quoted(own.task),
                        " is ", fixed_text(own.mean, 4), ", what is judged has ",
                        fixed_text(mean, 4), ": it scores in another way, or lines are missing"));
    }
  }
  return out;
}

namespace {

struct TotalOf {
  const Total* total;
  Estimate share;
};

/// The totals of a run by task, with their intervals.
std::map<std::string, TotalOf> totals_of(std::span<const ResultFile> files, double confidence) {
  std::map<std::string, TotalOf> out;
  for (const auto& file : files)
    for (const auto& total : file.totals) {
      const double hits = total.mean * static_cast<double>(total.count);
      const auto whole = static_cast<std::int64_t>(std::llround(hits));
      if (!(total.mean >= 0 && total.mean <= 1) || total.count < 1 ||
          std::abs(hits - static_cast<double>(whole)) > 1e-4)
        fail(ErrorCode::usage, printable(file.path, 400), ": the mean ", total.mean, " of ",
             quoted(total.task), " over ", total.count,
             " is not that of scores which are 0 or 1, and other totals have no interval: give the "
             "files with the single answers");
      if (!out.emplace(total.task, TotalOf{&total, binomial_mean(whole, total.count, confidence)})
               .second)
        fail(ErrorCode::usage, printable(file.path, 400), ": the task ", quoted(total.task),
             " is in another file too: name the file of one run");
    }
  return out;
}

}  // namespace

GateVerdict judge_totals(const std::string& name, std::span<const ResultFile> full,
                         std::span<const ResultFile> compressed, const Gate& gate) {
  using Kind = LossVerdict::Kind;
  std::set<std::string> tasks;
  for (const auto& file : full)
    for (const auto& total : file.totals) tasks.insert(total.task);
  // The loss lies within its interval where both scores of every task lie within theirs.
  const double error =
      (1 - gate.confidence) / (2 * static_cast<double>(std::max<std::size_t>(1, tasks.size())));
  const auto of_full = totals_of(full, 1 - error);
  const auto of_compressed = totals_of(compressed, 1 - error);
  GateVerdict verdict;
  verdict.name = name;
  verdict.rounds = 1;
  Estimate score{0, 0, 0}, full_score{0, 0, 0};
  const auto count = static_cast<double>(of_full.size());
  for (const auto& [task, one] : of_full) {
    const auto other = of_compressed.find(task);
    if (other == of_compressed.end() || other->second.total->count != one.total->count)
      fail(ErrorCode::usage, "the totals are not of the same prompts: the task ", quoted(task),
           " has ", one.total->count, " in the full run and ",
           other == of_compressed.end() ? "none" : std::to_string(other->second.total->count),
           " in the compressed one");
    for (double Estimate::*member : {&Estimate::mean, &Estimate::low, &Estimate::high}) {
      full_score.*member += one.share.*member / count;
      score.*member += other->second.share.*member / count;
    }
    verdict.measured.samples += one.total->count;
  }
  if (of_compressed.size() != of_full.size())
    fail(ErrorCode::usage, "the totals are not of the same tasks: ", of_full.size(),
         " in the full run, ", of_compressed.size(), " in the compressed one");
  verdict.measured.texts = verdict.measured.samples;
  verdict.measured.score = score;
  verdict.measured.full = full_score;
  verdict.measured.loss = {full_score.mean - score.mean, full_score.low - score.high,
                           full_score.high - score.low};
  const auto& loss = verdict.measured.loss;
  verdict.loss.loss = {100 * loss.mean, 100 * loss.low, 100 * loss.high};
  const double judged_low = gate.by_mean ? verdict.loss.loss.mean : verdict.loss.loss.low;
  const double judged_high = gate.by_mean ? verdict.loss.loss.mean : verdict.loss.loss.high;
  verdict.loss.kind = judged_high <= gate.max_loss ? Kind::passed
                      : judged_low > gate.max_loss ? Kind::failed
                                                   : Kind::undecided;
  return verdict;
}

}  // namespace kvatlas::calibrate
