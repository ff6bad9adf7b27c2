// SPDX-License-Identifier: Apache-2.0
// SimLayerKV's repository takes the threshold alone, as an argument of its generate().
#include "export/shared_impl.hpp"

namespace kvatlas::exporting {

Exported export_simlayerkv(const PartRequest& request) {
  const auto& lazy = std::get<calibrate::SimLayerKv>(request.theirs.policy.parts.front());
  const nlohmann::json numbers = {{"threshold", lazy.threshold}};
  Exported exported;
  exported.files = {{"simlayerkv.json", calibrate::canonical_json(numbers)}};
  exported.use =
      "# in LongBench/pred.py, get_pred(): after the lines that choose a threshold by the name of\n"
      "# the model (0.9, 0.65, 0.8, 0.85), before model.generate(..., threshold = threshold):\n"
      "threshold = " +
      numbers.at("threshold").dump() + "\n";
  exported.notes = {
      "generate() takes the threshold, and nothing else of the policy: 4 initial and 1024 recent "
      "tokens are written in its code (SimLayerKV_llama.py, SimLayerKV_qwen.py).",
      "It knows Llama, Mistral and Qwen 2."};
  return exported;
}

}  // namespace kvatlas::exporting
