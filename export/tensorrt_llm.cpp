// SPDX-License-Identifier: Apache-2.0
#include "base/str.hpp"
#include "export/shared_impl.hpp"

namespace kvatlas::exporting {
namespace {

using nlohmann::json;

/// The window of a full layer. TensorRT-LLM cuts windows to max_seq_len, and treats layers with a
/// window of that size as full ones.
constexpr std::int64_t kLongerThanAnySequence = std::int64_t{1} << 24;

json window_config(const PartRequest& request) {
  const auto windows = windows_of(request);
  json list = json::array();
  for (const auto lazy : windows.layers)
    list.push_back(lazy != 0 ? windows.size : kLongerThanAnySequence);
  return {{"model_kwargs", placed_in_config(request, window_fields(windows))},
          {"kv_cache_config", {{"max_attention_window", list}}}};
}

json rocket_config(const calibrate::DynamicKv& part) {
  return {{"sparse_attention_config",
           {{"algorithm", "rocket"},
            {"prompt_budget", calibrate::mean_budget(part)},
            {"window_size", part.select.window},
            {"kernel_size", part.select.kernel}}},
          {"kv_cache_config", {{"enable_block_reuse", false}}},
          {"enable_chunked_prefill", false}};
}

Exported triattention(const calibrate::Decoding& part) {
  return {{{"tensorrt_llm.yaml", yaml_text({{"kv_cache_compression_config",
                                             {{"algorithm", "triattention"},
                                              {"budget", part.budget},
                                              {"beta", part.every},
                                              {"eviction_mode", "per_layer_perhead"},
                                              {"calibration_path", "stats.pt"}}}})}},
          "kvatlas profile --model $MODEL --quick --capture queries -o queries.h5\n"
          "kvatlas export queries.h5 --to triattention -o statistics\n"
          "python3 statistics/write_triattention_stats.py statistics/query_statistics.safetensors "
          "$MODEL/config.json stats.pt\n"
          "trtllm-serve $MODEL --config tensorrt_llm.yaml",
          {str("The prompt stays whole. Of what is generated at most ", part.budget + part.every,
               " tokens a KV head are held."),
           "The model runs in bfloat16, and its layers have grouped queries and no windows."}};
}

}  // namespace

Exported export_tensorrt_llm(const PartRequest& request) {
  if (const auto* formats = std::get_if<calibrate::Precision>(&request.part)) {
    const auto format =
        calibrate::layer_formats(*formats, request.document.model.layers).front().keys;
    const bool small = format == calibrate::KvFormat::nvfp4;
    return {{{"tensorrt_llm.yaml",
              yaml_text({{"kv_cache_config", {{"dtype", small ? "nvfp4" : "fp8"}}}})}},
            "trtllm-serve $MODEL --config tensorrt_llm.yaml",
            {str("Without scales in the checkpoint TensorRT-LLM takes 1 for all of them: numbers "
                 "beyond ",
                 small ? 2688 : 448, " are cut to that.")}};
  }
  if (const auto* part = std::get_if<calibrate::Decoding>(&request.part))
    return triattention(*part);
  const auto* budgets = std::get_if<calibrate::DynamicKv>(&request.part);
  Exported out;
  out.files.push_back(
      {"tensorrt_llm.yaml", yaml_text(budgets ? rocket_config(*budgets) : window_config(request))});
  out.use = "trtllm-serve $MODEL --config tensorrt_llm.yaml";
  if (budgets) {
    out.notes = {
        "The budgets of the layers are lost, their mean is what every layer keeps.",
        "RocketKV works with neither block reuse nor chunked prefill: the file switches both off."};
    return out;
  }
  out.notes = {
      "A layer whose window is at least max_seq_len is a full one: 16777216 stands for that, and "
      "TensorRT-LLM cuts it to max_seq_len.",
      "The two lists say the same: max_attention_window sizes the cache, and layer_types with "
      "sliding_window mask the attention. Change both or neither.",
      "Beam search and speculation by trees need windows of one size, and do not work with this."};
  return out;
}

}  // namespace kvatlas::exporting
