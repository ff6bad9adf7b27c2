// SPDX-License-Identifier: Apache-2.0
#include "export/shared_impl.hpp"

namespace kvatlas::exporting {

Exported export_mlx_lm(const PartRequest& request) {
  const auto windows = windows_of(request);
  Exported out;
  out.files.push_back(config_file(request, window_fields(windows)));
  const std::string file = out.files.front().path;
  out.use =
      "import json\n"
      "from mlx_lm import generate, load\n"
      "model, tokenizer = load(\"$MODEL\", model_config=json.load(open(\"" +
      file + "\")))";
  if (request.config) out.use += "\n# or put config.json in the place of the checkpoint's";
  out.notes.push_back("--max-kv-size has no effect beside this: the model makes its own caches.");
  return out;
}

}  // namespace kvatlas::exporting
