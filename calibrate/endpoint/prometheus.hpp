// SPDX-License-Identifier: Apache-2.0
// What servers measure, as they publish it: Prometheus' text format.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace kvatlas::calibrate {

struct MetricSample {
  std::string name;
  std::map<std::string, std::string> labels;
  double value = 0;
};

/// The samples of a text. Comments are passed over, and so are lines that are no samples: a server
/// may publish what this format does not know. Error(unreadable) for more than a million lines.
std::vector<MetricSample> parse_metrics(std::string_view text);

/// The sum over the samples of that name that have a number: those of several engines or ranks.
std::optional<double> metric_sum(const std::vector<MetricSample>& samples, std::string_view name);
/// The label of the first sample of that name that has it; empty if there is none.
std::string metric_label(const std::vector<MetricSample>& samples, std::string_view name,
                         const std::string& label);

}  // namespace kvatlas::calibrate
