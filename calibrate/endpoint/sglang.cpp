// SPDX-License-Identifier: Apache-2.0
#include "calibrate/endpoint/server.hpp"

namespace kvatlas::calibrate {

// SGLang 0.5.23, read. Its own route gives ids; OpenAI's gives texts alone, of which two tokens may
// have the same. Each event holds all that was generated so far.
const ServerTable kSglang = {
    .name = "sglang",
    .title = "SGLang",
    .owner = "sglang",
    .path = "/generate",
    .takes_ids = true,
    .cumulative = true,
    .fixed = R"({"sampling_params": {"temperature": 0, "top_p": 1, "repetition_penalty": 1, "n": 1},
                 "stream": true})",
    .prompt = "/input_ids",
    .most_tokens = "/sampling_params/max_new_tokens",
    .ignore_end = "/sampling_params/ignore_eos",
    .top = "/top_logprobs_num",  // with /return_logprob
    .salt = "/cache_salt",
    .most_top = 20,
    .top_form = TopForm::triples,
    .text = "/text",
    .ids = "/output_ids",
    .finish = "/meta_info/finish_reason/type",
    .prompt_tokens = "/meta_info/prompt_tokens",
    .new_tokens = "/meta_info/completion_tokens",
    .cached_tokens = "/meta_info/cached_tokens",
    .tops = "/meta_info/output_top_logprobs",
    .chosen = "/meta_info/output_token_logprobs",
    .about = "/get_server_info",
    .version = "/version",
    .errors = {"/error/message", "/message"},
    .metrics = {.path = "/metrics",
                .capacity = "sglang:max_total_num_tokens",
                .held = "sglang:kv_used_tokens",
                .running = "sglang:num_running_reqs",
                .waiting = "sglang:num_queue_reqs",
                .preempted = "sglang:num_retracted_requests_total"},
};

}  // namespace kvatlas::calibrate
