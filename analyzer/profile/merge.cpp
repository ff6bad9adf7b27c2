// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include <nlohmann/json.hpp>

#include "analyzer/profile/output_file_impl.hpp"
#include "analyzer/profile/profile_file_impl.hpp"
#include "analyzer/profile/workplace_impl.hpp"
#include "base/json_text.hpp"
#include "base/plain_text.hpp"

namespace kvatlas::profile {
namespace {

namespace fs = std::filesystem;
using Files = std::vector<std::shared_ptr<const ProfileFile>>;

/// Backends of shards that ran on unlike machines, each once.
std::string all_backends(const Files& files) {
  std::vector<std::string> names;
  for (const auto& file : files)
    if (std::find(names.begin(), names.end(), file->header().backend) == names.end())
      names.push_back(file->header().backend);
  return join(names, "; ");
}

/// Where each part of a merged profile came from: a list of the plans, flat.
std::string all_prompts(const Files& files) {
  nlohmann::json plans = nlohmann::json::array();
  for (const auto& file : files) {
    const auto plan = parse_json(file->header().prompts);
    if (const auto merged = plan.find("merged"); plan.size() == 1 && merged != plan.end())
      plans.insert(plans.end(), merged->begin(), merged->end());
    else
      plans.push_back(plan);
  }
  return nlohmann::json{{"merged", plans}}.dump();
}

/// Shards of one plan: the first of those with one index stays.
Sources by_index(const Files& files) {
  Sources sources;
  for (const auto& file : files) add_sources(file, sources);
  std::stable_sort(sources.begin(), sources.end(), [](const auto& a, const auto& b) {
    return a->about().index < b->about().index;
  });
  sources.erase(std::unique(sources.begin(), sources.end(),
                            [](const auto& a, const auto& b) {
                              return a->about().index == b->about().index;
                            }),
                sources.end());
  return sources;
}

Sources one_after_the_other(const Files& files) {
  Sources sources;
  std::int64_t next = 0;
  for (const auto& file : files) {
    std::vector<std::int64_t> index(file->samples().size());
    for (auto& number : index) number = next++;
    add_sources(file, sources, index);
  }
  return sources;
}

}  // namespace

void merge(std::span<const fs::path> inputs, const fs::path& output, bool force) {
  if (inputs.empty()) fail(ErrorCode::usage, "there is nothing to merge");
  const Hdf5Session session;
  Files files;
  bool same_plan = true;
  for (const fs::path& input : inputs) {
    files.push_back(
        in_context(shown(input), [&] { return std::make_shared<const ProfileFile>(input); }));
    const Header &first = files.front()->header(), &header = files.back()->header();
    const auto clauses = differences(first, header, false);
    if (!clauses.empty())
      fail(ErrorCode::usage, shown(inputs.front()), " and ", shown(input),
           " cannot be merged: ", first_few(clauses), " ('there' is the first file)");
    same_plan = same_plan && differences(first, header, true).empty();
  }
  const Workplace place = Workplace::lock(output);
  if (!force && (is_there(output) || !place.parts().empty()))
    fail(ErrorCode::usage, shown(output), " is there already: --force replaces it");
  require_replaceable(output);

  Header header = files.front()->header();
  header.backend = all_backends(files);
  for (const auto& file : files) add_texts(file->header(), header);
  if (!same_plan) {
    header.prompts = all_prompts(files);
    header.planned_samples = 0;
    for (const auto& file : files) header.planned_samples += file->header().planned_samples;
  }
  const Sources sources = same_plan ? by_index(files) : one_after_the_other(files);
  write_file(place.assembled(), output, [&](hid_t file) { write_profile(file, header, sources); });
  place.remove_parts();
  place.remove_half_written();
  place.end_anew();
}

}  // namespace kvatlas::profile
