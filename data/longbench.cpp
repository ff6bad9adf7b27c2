// SPDX-License-Identifier: Apache-2.0
#include "data/longbench.hpp"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "data/texts.hpp"

namespace kvatlas::data {
namespace {

std::vector<LongBenchDataset> read_datasets() {
  std::vector<LongBenchDataset> datasets;
  for (const auto& line : nlohmann::json::parse(longbench_text()))
    datasets.push_back({line.at("name"), line.at("about"), line.at("metric"), line.at("language"),
                        line.at("answer_tokens"), line.at("first_line"), line.at("chat"),
                        line.at("template")});
  return datasets;
}

}  // namespace

std::string LongBenchDataset::fill(std::string_view context, std::string_view input) const {
  constexpr std::string_view kContext = "{context}", kInput = "{input}";
  const std::string_view form = prompt_template;
  std::string out;
  for (std::size_t at = 0; at < form.size();) {
    if (form.substr(at, kContext.size()) == kContext) {
      out += context;
      at += kContext.size();
    } else if (form.substr(at, kInput.size()) == kInput) {
      out += input;
      at += kInput.size();
    } else {
      out += form[at++];
    }
  }
  return out;
}

std::span<const LongBenchDataset> longbench_datasets() {
  static const auto kDatasets = read_datasets();
  return kDatasets;
}

const LongBenchDataset* longbench_dataset(std::string_view task) {
  if (task.size() > 2 && task.substr(task.size() - 2) == "_e") task.remove_suffix(2);
  const auto all = longbench_datasets();
  const auto found = std::find_if(all.begin(), all.end(),
                                  [&](const auto& dataset) { return dataset.name == task; });
  return found == all.end() ? nullptr : &*found;
}

std::vector<std::int64_t> truncate_middle(std::span<const std::int64_t> tokens, std::int64_t most) {
  if (most < 0) fail(ErrorCode::usage, "a prompt cannot be cut to ", most, " tokens");
  const auto kept = static_cast<std::size_t>(most);
  if (tokens.size() <= kept) return {tokens.begin(), tokens.end()};
  std::vector<std::int64_t> out(tokens.begin(), tokens.begin() + kept / 2);
  out.insert(out.end(), tokens.end() - (kept - kept / 2), tokens.end());
  return out;
}

}  // namespace kvatlas::data
