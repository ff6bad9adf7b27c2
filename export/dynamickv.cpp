// SPDX-License-Identifier: Apache-2.0
// DynamicKV's repository takes the settings of its program, which finds the budgets by itself.
#include "base/str.hpp"
#include "export/shared_impl.hpp"

namespace kvatlas::exporting {
namespace {

/// The word that the program looks for in a model's name. It leaves models without it as they are.
std::string name_of(const PartRequest& request) {
  const auto architecture = architecture_of(request);
  return architecture == "internlm2" ? "internlm" : architecture;
}

}  // namespace

Exported export_dynamickv(const PartRequest& request) {
  const auto& part = std::get<calibrate::DynamicKv>(request.theirs.policy.parts.front());
  const auto& select = part.select;
  const bool average = select.pooling == calibrate::Pooling::average;
  const std::string name = name_of(request);
  Exported exported;
  exported.files = {
      {"run_dynamickv.sh", str("#!/bin/sh\n"
                               "# SPDX-License-Identifier: Apache-2.0\n"
                               "# In the repository's folder: MODEL is the checkpoint's folder; "
                               "more options of pred.py\n"
                               "# may follow.\n"
                               "exec python run/longbench/pred.py --method DynamicKV_v11 \\\n"
                               "  --model_path \"${MODEL:?}\" --model_name ",
                               name,
                               " \\\n"
                               "  --max_capacity_prompts ",
                               select.budget, " --window_size ", select.window,
                               " \\\n"
                               "  --kernel_sizes ",
                               select.kernel, " --pooling ", average ? "avgpool" : "maxpool",
                               " --radio_max ", nlohmann::json(part.r_max).dump(), " \"$@\"\n")}};
  exported.use =
      "# in the repository's folder, DIR being this one:\n"
      "MODEL=$MODEL sh DIR/run_dynamickv.sh --dataset_file data/LongBench --save_dir results\n";
  exported.notes = {
      "The budgets are found anew for each prompt and each layer; those of the policy cannot be "
      "given to the program. KVCache-Factory and kvpress take them.",
      "The program patches a model by its name: --model_name has to hold llama, mistral, qwen2 or "
      "internlm, or nothing is compressed, without a word.",
      "The folder's name chooses the longest prompt, and has to hold llama2, llama3, mistral, "
      "qwen2, lwm or internlm.",
      "It needs flash-attn and a CUDA GPU, and its code has the path /DynamicKV: clone it there."};
  return exported;
}

}  // namespace kvatlas::exporting
