// SPDX-License-Identifier: Apache-2.0
// Budgets tried on the model: the smallest that keeps the score, and what it costs.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "calibrate/methods/judging.hpp"
#include "calibrate/policy/method.hpp"

namespace kvatlas::calibrate {

/// One way to spread a budget over layers or heads.
struct BudgetWay {
  std::string title;     // as tables call it
  BudgetReport* report;  // what is found of it
  /// The part of a budget, by its place in the list, for samples of a task.
  std::function<Part(std::size_t budget, const std::string& task)> part;
};

/// Where a sweep's samples are from, and what its tables say.
struct BudgetSweep {
  const Evidence& evidence;
  const RunTrials& run;
  const Method& method;
  std::vector<std::int64_t> budgets;  // ascending
  const char* spread;                 // what the ways find: "its layers' budgets are found"
  const char* others;                 // above the table of the other ways
  /// The document's budget as it was asked for, and the share of the score that may be lost.
  std::optional<std::int64_t> asked = {};
  double tolerance = 0;

  /// What trials of all budgets say.
  struct Choice {
    /// [way]: the place of the smallest budget that saves, and keeps the score there and at every
    /// larger one. Empty if a budget was asked for and no sample has a score.
    std::vector<std::optional<std::size_t>> smallest = {};
    std::optional<Estimate> full = {};  // the full cache's score
  };
  /// Tries every budget on samples with answers.
  Choice choose(std::span<const BudgetWay> ways, const std::vector<std::size_t>& samples,
                Calibrated& out) const;
  /// The document's budget, if this is the smallest that keeps the score. None if there is none,
  /// and none was asked for.
  std::optional<std::int64_t> settle(std::optional<std::size_t> smallest, Calibrated& out) const;
  /// Tries one budget on samples that neither the choice nor the ways have seen, or if there are
  /// none on those of the choice. The first way is the document's.
  void measure(std::span<const BudgetWay> ways, std::int64_t budget, const Split& split,
               Calibrated& out) const;

 private:
  Verdict try_ways(std::span<const BudgetWay> ways, std::span<const std::size_t> places,
                   const std::vector<std::size_t>& samples) const;
};

}  // namespace kvatlas::calibrate
