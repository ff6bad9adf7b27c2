// SPDX-License-Identifier: Apache-2.0
// Gates: whether what was measured beside a full cache, text by text, surely loses no more than it
// may (docs/certainty.md). One verdict each, in words, as JSON and as JUnit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "calibrate/report/report.hpp"
#include "calibrate/rules/certainty.hpp"

namespace kvatlas::calibrate {

/// What a gate asks.
struct Gate {
  std::string command = "check";                  // that asks it
  std::string subject;                            // what is judged: a document, a file
  std::string one = "policy", many = "policies";  // what `subject` is made of, as JSON names it
  double max_loss = 1;                            // points of the score that may be lost
  bool by_loss = true;                            // the score is judged
  double max_kl = kNotKnown;         // nats that the median over texts may be; NaN: not asked
  double min_agreement = kNotKnown;  // that the mean must be, 0 to 1; NaN: not asked
  bool by_mean = false;              // however few texts there are
  double confidence = kConfidence;   // of each verdict
  bool by_likeness() const { return max_kl == max_kl || min_agreement == min_agreement; }
};

/// What one policy, server or file is judged to be.
struct GateVerdict {
  std::string name;
  Measured measured;
  std::size_t tasks = 1;   // how many texts of different tasks a loss is the mean of
  std::size_t rounds = 0;  // how many losses there are
  LossVerdict loss;        // in points; its kind, and how many more texts, of all that is judged
  /// What is judged beside the loss: one of these each, whatever its answer.
  struct Beside {
    std::string sentence;  // without a full stop
    std::string name;      // in JSON
    LossVerdict::Kind kind;
  };
  std::vector<Beside> besides;

  const char* word() const;  // "passed", "FAILED" or "undecided"
};

/// What was not judged, and why.
struct LeftOut {
  std::string policy, reason;
};

/// Judges the losses of texts, in points and in the order in which texts are looked at. `mean` is
/// their mean over all tasks, which decides where the gate goes by the mean alone.
GateVerdict judge(std::string name, Measured measured, std::size_t tasks,
                  std::span<const double> losses, Estimate mean, const Gate& gate);

/// How like the full cache's answers those of another are, without scores.
struct Likeness {
  std::vector<double> kl;         // of each text, in nats
  std::vector<double> agreement;  // of each round of texts (TaskMeans::rounds)
};
/// Judges what the gate asks of likeness too. A median is at most a limit if at most half of the
/// texts lie above it, which a betting interval tells after every text; so is a mean agreement.
/// `measured` must hold both figures.
void judge_likeness(GateVerdict& verdict, const Likeness& likeness, const Gate& gate);
/// What that needs, before anything is run: sentences without a full stop.
std::vector<std::string> likeness_needs(const Gate& gate);

/// What two caches scored on one prompt, 0 to 1.
struct ScorePair {
  std::string task, group;  // the group has a name; prompts of one text share it
  double full = 0, score = 0;
};
/// Puts pairs that were made together into the order of a hash of their tasks and groups.
void put_in_hashed_order(std::vector<ScorePair>& pairs);
/// Judges pairs in their order.
GateVerdict judge_pairs(std::string name, std::span<const ScorePair> pairs, const Gate& gate);

/// "failed" where one of them is, else "undecided" where one is, else "passed".
std::string verdict_of_all(std::span<const GateVerdict> verdicts);

/// A verdict as a sentence without a full stop.
std::string line_of(const GateVerdict& verdict, const Gate& gate);
/// All verdicts for programs.
nlohmann::json verdicts_json(std::span<const GateVerdict> verdicts,
                             std::span<const LeftOut> left_out, const Gate& gate);
/// JUnit's format, a test case a verdict: too great a loss is a failure, an open verdict an error,
/// and what was not judged is skipped; all of it is an error where the run itself failed.
std::string junit_text(std::span<const GateVerdict> verdicts, std::span<const LeftOut> not_judged,
                       bool run_failed, const Gate& gate);

/// Before anything is judged: error if JUnit's file cannot be written. Removes what a gate said
/// there before, unless it is to stay: it is no verdict on this run, however that ends.
void prepare_junit(const std::string& path, bool remove_old);

/// The limit as one would type it: rounded up, for less would not be met.
std::string limit_text(double points);

/// Before anything is judged: error(usage) for fewer texts than a verdict may rest on, unless
/// `force` is set. `more` says how one comes to have more.
void require_gate_texts(std::size_t prompts, std::size_t texts, bool force, const std::string& more,
                        const std::string& which = "with answers");
/// Error(usage) if the full cache's score, a mean of the tasks' means, is too low to judge by,
/// unless `force` is set. NaN are no scores; there must be one.
void require_gate_score(std::span<const double> scores, std::span<const std::string> groups,
                        std::span<const std::string> tasks, bool force);

}  // namespace kvatlas::calibrate
