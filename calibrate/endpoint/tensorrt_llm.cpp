// SPDX-License-Identifier: Apache-2.0
#include "calibrate/endpoint/server.hpp"

namespace kvatlas::calibrate {

// trtllm-serve, read. It forbids members that it does not know. Its log-probabilities name tokens
// by their texts, of which two may have the same, so nothing is said of divergences.
const ServerTable kTensorRtLlm = {
    .name = "tensorrt-llm",
    .title = "TensorRT-LLM",
    .owner = "tensorrt_llm",
    .path = "/v1/completions",
    .takes_ids = true,
    .fixed = R"({"temperature": 0, "top_p": 1, "repetition_penalty": 1, "n": 1, "seed": 0,
                 "stream": true, "stream_options": {"include_usage": true}})",
    .prompt = "/prompt",
    .most_tokens = "/max_tokens",
    .model = "/model",
    .ignore_end = "/ignore_eos",
    .no_top = "its log-probabilities name tokens by texts, not by ids",
    .text = "/choices/0/text",
    .finish = "/choices/0/finish_reason",
    .prompt_tokens = "/usage/prompt_tokens",
    .new_tokens = "/usage/completion_tokens",
    .cached_tokens = "/usage/prompt_tokens_details/cached_tokens",
    .about = "/version",
    .version = "/version",
    .errors = {"/message", "/error/message"},
    .metrics = {.path = "/prometheus/metrics",
                .capacity = "trtllm_kv_cache_max_blocks",
                .held = "trtllm_kv_cache_used_blocks",
                .running = "trtllm_num_requests_running",
                .waiting = "trtllm_num_requests_waiting"},
};

}  // namespace kvatlas::calibrate
