// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "base/str.hpp"
#include "export/shared_impl.hpp"

namespace kvatlas::exporting {
namespace {

struct Sizes {
  std::int64_t start = 0, recent = 0, most = 0;
};

/// The first and the recent tokens, and one block for those that took most attention, for OpenVINO
/// needs a block for them.
Sizes of_streaming(const PartRequest& request) {
  const auto keep = *calibrate::kept_window(request.theirs.policy.parts.at(0));
  const auto block = request.runtime.page_tokens;
  return {keep.initial, keep.recent - block, keep.initial + keep.recent};
}

/// Every layer has the mean size. It keeps the first tokens, then the recent ones as far as there
/// is room, and otherwise the tokens that took most attention.
Sizes of_mean(const PartRequest& request, std::int64_t mean, std::int64_t initial,
              std::int64_t recent) {
  const auto block = request.runtime.page_tokens;
  Sizes sizes;
  sizes.start = calibrate::whole_pages(initial, block);
  sizes.most = std::max(calibrate::whole_pages(mean, block), sizes.start + 2 * block);
  sizes.recent = std::min(calibrate::whole_pages(recent, block), sizes.most - sizes.start - block);
  return sizes;
}

std::int64_t mean_kept(const PartRequest& request) {
  std::int64_t sum = 0;
  const auto kept = kept_tokens(request, request.part);
  for (const auto& layer : kept) sum += layer.front();
  return sum / std::ssize(kept);
}

}  // namespace

Exported export_openvino(const PartRequest& request) {
  Sizes sizes;
  Exported out;
  std::string name = "cb_config.json";
  const auto& theirs = request.theirs.policy.parts.at(0);
  if (const auto* heavy = std::get_if<calibrate::H2o>(&theirs)) {
    sizes = of_mean(request, heavy->budget, 0, heavy->budget / 2);
    out.notes.push_back(
        "The budgets of the layers are lost, their mean is what every layer keeps.");
  } else if (!request.theirs.not_simulated.empty()) {
    const auto keep = proximal(request);
    sizes = of_mean(request, mean_kept(request), keep.initial, keep.recent);
    name = str("cb_config_", request.length, ".json");
    out.notes.push_back(str("Which layers are lazy is lost: every layer keeps ", sizes.most,
                            " tokens, the mean of "
                            "the policy for a prompt of ",
                            request.length, ". It is for prompts of that length."));
  } else {
    sizes = of_streaming(request);
  }
  out.files.push_back({name, calibrate::canonical_json({{"use_cache_eviction", true},
                                                        {"cache_eviction_config",
                                                         {{"start_size", sizes.start},
                                                          {"recent_size", sizes.recent},
                                                          {"max_cache_size", sizes.most},
                                                          {"aggregation_mode", "NORM_SUM"}}}})});
  out.model =
      "the model's folder as OpenVINO has it ('kvatlas evaluate' takes what it was made of)";
  out.use = str("python benchmark.py -m $MODEL --cb_config ", name,
                "\n# or, in Python:\nimport openvino_genai as ov\n"
                "scheduler = ov.SchedulerConfig()\n"
                "scheduler.use_cache_eviction = True\n"
                "scheduler.cache_eviction_config = ov.CacheEvictionConfig(start_size=",
                sizes.start, ", recent_size=", sizes.recent, ",\n    max_cache_size=", sizes.most,
                ", aggregation_mode=ov.AggregationMode.NORM_SUM)\n"
                "pipeline = ov.LLMPipeline(\"$MODEL\", \"CPU\", scheduler_config=scheduler)");
  out.notes.push_back(
      "Sizes are multiples of 32, the block on a CPU; a GPU's is 16, which they are multiples of "
      "too. benchmark.py is tools/llm_bench of the OpenVINO GenAI repository.");
  return out;
}

}  // namespace kvatlas::exporting
