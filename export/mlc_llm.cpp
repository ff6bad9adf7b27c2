// SPDX-License-Identifier: Apache-2.0
#include "base/str.hpp"
#include "export/shared_impl.hpp"

namespace kvatlas::exporting {

Exported export_mlc_llm(const PartRequest& request) {
  const auto keep = *calibrate::kept_window(request.theirs.policy.parts.at(0));
  // MLC-LLM's window includes the first tokens.
  const auto window = keep.initial + keep.recent;
  Exported out;
  out.files.push_back({"mlc_chat_config_overrides.json",
                       calibrate::canonical_json({{"attention_sink_size", keep.initial},
                                                  {"context_window_size", -1},
                                                  {"sliding_window_size", window}})});
  out.use =
      str("mlc_llm gen_config $MODEL --quantization q4f16_1 --conv-template mistral_default "
          "\\\n  --context-window-size -1 --sliding-window-size ",
          window, " --attention-sink-size ", keep.initial,
          " -o $MODEL-mlc\n# or write the three fields into $MODEL-mlc/mlc-chat-config.json");
  out.notes.push_back(
      "The fields are compiled into the model library: generate the configuration first, then "
      "compile.");
  return out;
}

}  // namespace kvatlas::exporting
