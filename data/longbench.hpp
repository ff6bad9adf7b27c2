// SPDX-License-Identifier: Apache-2.0
// LongBench's datasets: how a line of their files becomes a prompt, and how it is scored.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace kvatlas::data {

struct LongBenchDataset {
  std::string name, about;
  std::string metric;    // as in Prompt::metric
  std::string language;  // "en", "zh" or "code"
  std::int64_t answer_tokens = 0;
  bool first_line = false;      // only the first line that is generated counts
  bool chat = false;            // false: the prompt is never put into a chat format
  std::string prompt_template;  // with {context} and, mostly, {input}

  /// The template with both put in.
  std::string fill(std::string_view context, std::string_view input) const;
};

/// All 21 datasets, in LongBench's order.
std::span<const LongBenchDataset> longbench_datasets();

/// The dataset of that name; null if the task is none. The datasets of LongBench-E are the same and
/// have "_e" behind their names.
const LongBenchDataset* longbench_dataset(std::string_view task);

/// At most `most` tokens: half of them from the start and half from the end, because a prompt can
/// best do without its middle. A shorter list stays as it is.
std::vector<std::int64_t> truncate_middle(std::span<const std::int64_t> tokens, std::int64_t most);

}  // namespace kvatlas::data
