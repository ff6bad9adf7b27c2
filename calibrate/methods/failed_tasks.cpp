// SPDX-License-Identifier: Apache-2.0
#include "calibrate/methods/failed_tasks.hpp"

#include <map>

#include "base/str.hpp"
#include "calibrate/methods/judging.hpp"

namespace kvatlas::calibrate {

FailedTasks failed_tasks(const Evidence& evidence, const RunTrials& run) {
  const Split split = evidence.split(evidence.answered(evidence.positions()));
  const Verdict full(evidence, run, {}, split.choice);
  std::map<std::string, std::vector<double>> scores;
  for (std::size_t s = 0; s < full.samples().size(); ++s)
    scores[full.tasks()[s]].push_back(full.full()[s]);
  FailedTasks out;
  for (const auto& [task, of_task] : scores)
    if (const double score = mean_of(of_task); score < kLeastFullScore) {
      out.names.push_back(task);
      out.said.push_back(str("left out: the task ", printable(task),
                             ", on which the full cache scores ", fixed_text(score, 2),
                             ", so that nothing can be told from what a policy loses (it is kept "
                             "where it is asked for by name, or with --force)"));
    }
  return out.names.size() < scores.size() ? out : FailedTasks{};
}

}  // namespace kvatlas::calibrate
