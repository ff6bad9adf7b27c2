// SPDX-License-Identifier: Apache-2.0
#include "calibrate/endpoint/server.hpp"

namespace kvatlas::calibrate {

// vLLM 0.33.0, run. It takes members that it does not know without a word, so what was asked is
// looked for in the answer. What a request leaves open comes from the model's
// generation_config.json, and greedy choices do not undo a repetition penalty.
const ServerTable kVllm = {
    .name = "vllm",
    .title = "vLLM",
    .owner = "vllm",
    .path = "/v1/completions",
    .takes_ids = true,
    .fixed = R"({"temperature": 0, "top_p": 1, "repetition_penalty": 1, "n": 1, "seed": 0,
                 "stream": true, "stream_options": {"include_usage": true},
                 "return_token_ids": true, "return_tokens_as_token_ids": true,
                 "skip_special_tokens": true})",
    .prompt = "/prompt",
    .most_tokens = "/max_tokens",
    .model = "/model",
    .ignore_end = "/ignore_eos",
    .top = "/logprobs",
    .salt = "/cache_salt",
    .forced = "/vllm_xargs/kvatlas_forced",
    .most_top = 20,  // --max-logprobs may allow more or less
    .top_form = TopForm::by_id_text,
    .text = "/choices/0/text",
    .ids = "/choices/0/token_ids",
    .finish = "/choices/0/finish_reason",
    .prompt_tokens = "/usage/prompt_tokens",
    .new_tokens = "/usage/completion_tokens",
    .cached_tokens = "/usage/prompt_tokens_details/cached_tokens",
    .tops = "/choices/0/logprobs",
    .about = "/version",
    .version = "/version",
    .errors = {"/error/message", "/message"},
    .metrics = {.path = "/metrics",
                .capacity = "vllm:cache_config_info",
                // Not num_gpu_blocks: a block is of other layers and tokens where layers are cut.
                .capacity_label = "kv_cache_memory_bytes",
                .capacity_label_else = "kv_cache_size_tokens",
                .format = "vllm:cache_config_info",
                .format_label = "cache_dtype",
                .held_share = "vllm:kv_cache_usage_perc",
                .running = "vllm:num_requests_running",
                .waiting = "vllm:num_requests_waiting",
                .preempted = "vllm:num_preemptions_total"},
};

}  // namespace kvatlas::calibrate
