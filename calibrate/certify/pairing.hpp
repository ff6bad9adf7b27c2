// SPDX-License-Identifier: Apache-2.0
// Two runs of one benchmark, paired prompt by prompt.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "calibrate/certify/gate.hpp"
#include "calibrate/certify/result_file.hpp"

namespace kvatlas::calibrate {

struct PairRequest {
  std::optional<ValueRange> range;  // of scores; 0 to 1 if none is given
  bool force = false;               // pair what is doubtful
};

/// What two runs scored, in the hashed order of their texts, and what the reader should know.
struct PairedRuns {
  std::vector<ScorePair> pairs;
  std::size_t failed = 0;    // that the compressed run lacks: they score nothing there
  std::size_t left_out = 0;  // that the full run lacks
  std::vector<std::string> notes;
};

/// Error(usage or unreadable) if the runs cannot be paired: other formats, metrics or settings,
/// prompts that differ, prompts that one run lacks, ids that stand for several prompts, or scores
/// beyond their range. `force` takes prompts that one run lacks (those of the compressed run score
/// nothing, for a prompt that fails is a loss; those of the full run are left out) and prompts that
/// cannot be told apart, which become one text.
PairedRuns pair_runs(std::span<const ResultFile> full, std::span<const ResultFile> compressed,
                     const PairRequest& request);

/// What a run's files say of their own means and what their scores do not make: sentences.
std::vector<std::string> doubts_of(std::span<const ResultFile> run);

/// The verdict of means alone, of scores that are 0 or 1: of each mean the exact binomial interval,
/// then their difference. Error(usage or unreadable) if they are not such, or of other tasks.
GateVerdict judge_totals(const std::string& name, std::span<const ResultFile> full,
                         std::span<const ResultFile> compressed, const Gate& gate);

}  // namespace kvatlas::calibrate
