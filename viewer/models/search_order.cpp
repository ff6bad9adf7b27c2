// SPDX-License-Identifier: Apache-2.0
#include "viewer/models/search_order.hpp"

#include "base/error.hpp"
#include "calibrate/policy/policy_files.hpp"

namespace kvatlas::viewer {

namespace fs = std::filesystem;

std::vector<std::string> search_words(const SearchOrder& order) {
  if (order.model.empty())
    fail(ErrorCode::usage, "say which model to try policies on: a GGUF file or a folder");
  if (order.memory.empty() == !order.saving.has_value())
    fail(ErrorCode::usage, "say how much memory there is, or what share of the cache to save");
  if (order.context < 1) fail(ErrorCode::usage, "say how many tokens of context must fit");
  if (order.output.empty()) fail(ErrorCode::usage, "say where to write the policy");
  std::vector<std::string> words = {"calibrate", "auto", "--model", order.model};
  const auto add = [&](const char* option, const std::string& value) {
    words.emplace_back(option);
    words.push_back(value);
  };
  if (!order.profile.empty()) add("--profile", order.profile);
  if (order.saving)
    add("--kv-saving", str(*order.saving));
  else
    add("--memory", order.memory);
  add("--context", str(order.context));
  add("--batch", str(order.batch));
  add("--max-loss", str(order.max_loss));
  if (!order.runtime.empty()) add("--for", order.runtime);
  add("-o", order.output.string());
  std::error_code problem;
  const bool there = fs::exists(order.output, problem);
  if (there && order.replace)
    words.emplace_back("--force");
  else if (fs::exists(calibrate::search_journal(order.output), problem))
    words.emplace_back("--resume");
  else if (there)
    fail(ErrorCode::usage, quoted(order.output.string(), 400),
         " is there already: allow that it is replaced, or name another file");
  return words;
}

}  // namespace kvatlas::viewer
