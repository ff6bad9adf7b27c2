// SPDX-License-Identifier: Apache-2.0
#include "calibrate/simulate/pod_blocks.hpp"

#include <numeric>

#include "base/error.hpp"
#include "calibrate/policy/method.hpp"
#include "calibrate/rules/read_evidence.hpp"

namespace kvatlas::calibrate {
namespace {

std::vector<std::vector<std::int64_t>> blocks_of_profile(const Pod& pod,
                                                         const model::Config& config) {
  const profile::Reader profile(pod.blocks_file);
  const auto& header = profile.header();
  if (header.n_layers != config.n_layers || header.n_heads != config.n_heads ||
      header.n_kv_heads != config.n_kv_heads)
    fail(ErrorCode::usage, "the profile is of a model of ", header.n_layers, " layers and ",
         header.n_heads, " heads, this one has ", config.n_layers, " and ", config.n_heads);
  std::vector<std::size_t> all(profile.samples().size());
  std::iota(all.begin(), all.end(), std::size_t{0});
  const SimilarityOfSamples similarity = read_similarity(profile, all);
  if (similarity.positions.empty())
    fail(ErrorCode::usage,
         "no sample of the profile has the divergence of its layers: profile longer prompts with "
         "--capture js");
  return pod_blocks(similarity, header.n_kv_heads, pod.per_query_head, pod.delta);
}

std::vector<std::vector<std::int64_t>> blocks_of_document(const Pod& pod) {
  const Document document = read_document(pod.blocks_file);
  if (!document.sections.contains(method::kPod.name))
    fail(ErrorCode::usage, "the policy document has no section 'pod'");
  auto lowest =
      std::get<Pod>(part_of(method::kPod.name, document.sections.at(method::kPod.name))).lowest;
  if (lowest.empty())
    fail(ErrorCode::usage,
         "its section 'pod' holds no blocks: 'kvatlas calibrate pod' finds them from a profile");
  return lowest;
}

}  // namespace

void load_blocks(Policy& policy, const model::Config& config) {
  for (auto& part : policy.parts) {
    auto* pod = std::get_if<Pod>(&part);
    if (!pod || pod->blocks_file.empty() || !pod->lowest.empty()) continue;
    in_context(printable(pod->blocks_file), [&] {
      pod->lowest = profile::is_profile(pod->blocks_file) ? blocks_of_profile(*pod, config)
                                                          : blocks_of_document(*pod);
    });
  }
}

}  // namespace kvatlas::calibrate
