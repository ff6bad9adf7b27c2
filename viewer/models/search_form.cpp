// SPDX-License-Identifier: Apache-2.0
#include "viewer/models/search_form.hpp"

#include "base/error.hpp"
#include "calibrate/policy/policy_files.hpp"

namespace kvatlas::viewer {

namespace fs = std::filesystem;

std::vector<std::string> search_words(const SearchForm& request) {
  if (request.model.empty())
    fail(ErrorCode::usage, "say which model to try policies on: a GGUF file or a folder");
  if (request.memory.empty() == !request.saving.has_value())
    fail(ErrorCode::usage, "say how much memory there is, or what share of the cache to save");
  if (request.context < 1) fail(ErrorCode::usage, "say how many tokens of context must fit");
  if (request.output.empty()) fail(ErrorCode::usage, "say where to write the policy");
  std::vector<std::string> words = {"calibrate", "auto", "--model", request.model};
  const auto add = [&](const char* option, const std::string& value) {
    words.emplace_back(option);
    words.push_back(value);
  };
  if (!request.profile.empty()) add("--profile", request.profile);
  if (request.saving)
    add("--kv-saving", str(*request.saving));
  else
    add("--memory", request.memory);
  add("--context", str(request.context));
  add("--batch", str(request.batch));
  add("--max-loss", str(request.max_loss));
  if (!request.runtime.empty()) add("--for", request.runtime);
  add("-o", request.output.string());
  std::error_code problem;
  const bool there = fs::exists(request.output, problem);
  if (there && request.replace)
    words.emplace_back("--force");
  else if (fs::exists(calibrate::trials_beside(request.output), problem))
    words.emplace_back("--resume");
  else if (there)
    fail(ErrorCode::usage, quoted(request.output.string(), 400),
         " is there already: allow that it is replaced, or name another file");
  return words;
}

}  // namespace kvatlas::viewer
