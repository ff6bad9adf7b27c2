// SPDX-License-Identifier: Apache-2.0
#include "calibrate/report/report.hpp"

#include "base/text_count.hpp"
#include "calibrate/rules/calibrated.hpp"

namespace kvatlas::calibrate {

Table measured_table(const std::string& title, const Measured& measured) {
  Table table{title, {"task", "samples", "full", "score", "loss", {"KV kept", "share"}}, {}};
  const auto add = [&](const std::string& name, const Measured& of) {
    table.rows.push_back({name, str(of.samples, of_texts(of.samples, of.texts)),
                          fixed_text(of.full.mean, 3), estimate_text(of.score),
                          estimate_text(of.loss), of.kept_share});
  };
  const auto& tasks = measured.tasks;
  if (tasks.size() > 1)
    for (const auto& [task, of] : tasks) add(printable(task), of);
  add(tasks.size() == 1 ? printable(tasks.begin()->first) : "all (mean of tasks)", measured);
  return table;
}

}  // namespace kvatlas::calibrate
