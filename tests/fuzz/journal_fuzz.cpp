// SPDX-License-Identifier: Apache-2.0
// The journal of a search: what is resumed goes on, and then holds what it held and what was added.
#include <iostream>

#include "base/error.hpp"
#include "calibrate/methods/trial_journal.hpp"
#include "tests/fuzz/input_file.hpp"

using namespace kvatlas;
using calibrate::TrialJournal;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const InputFile file("policy.trials.jsonl");
  const nlohmann::json settings = {{"model", "m"}, {"new", 8}};
  file.write(data, size);
  std::size_t known = 0, run = 0;
  try {
    TrialJournal journal(file.path(), settings, TrialJournal::Open::resume);
    known = journal.known();
    const calibrate::Policy policies[] = {calibrate::parse_policy("streaming:initial=4,recent=8")};
    const std::size_t samples[] = {0, 1};
    const auto nothing_lost = [&](std::span<const calibrate::Policy> asked,
                                  std::span<const std::size_t> of, calibrate::Measure) {
      run += asked.size() * of.size();
      return std::vector(asked.size(), std::vector<calibrate::Trial>(of.size()));
    };
    journal.around(nothing_lost)(policies, samples, calibrate::Measure::both);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::internal) return 0;
    std::cerr << error.what() << '\n';
    std::abort();
  }
  const TrialJournal again(file.path(), settings, TrialJournal::Open::resume);
  if (again.known() == known + run) return 0;
  std::cerr << known << " trials and " << run << " new ones became " << again.known() << '\n';
  std::abort();
}
