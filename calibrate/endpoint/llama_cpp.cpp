// SPDX-License-Identifier: Apache-2.0
#include "calibrate/endpoint/server.hpp"

namespace kvatlas::calibrate {

// llama.cpp's server, as of November 2026. Its own route takes ids and gives ids back; what it
// calls n_probs are probabilities before sampling, up to the whole vocabulary.
const ServerTable kLlamaCpp = {
    .name = "llama.cpp",
    .title = "llama.cpp's server",
    .owner = "llamacpp",
    .path = "/completion",
    .takes_ids = true,
    .fixed = R"({"temperature": 0, "top_p": 1, "top_k": 0, "min_p": 0, "repeat_penalty": 1,
                 "presence_penalty": 0, "frequency_penalty": 0, "dry_multiplier": 0,
                 "xtc_probability": 0, "seed": 0, "stream": true, "return_tokens": true,
                 "cache_prompt": false, "post_sampling_probs": false})",
    .prompt = "/prompt",
    .most_tokens = "/n_predict",
    .ignore_end = "/ignore_eos",
    .top = "/n_probs",
    .forced = "/grammar",  // which n_probs do not see
    .forced_as_grammar = true,
    .most_top = 20,
    .top_form = TopForm::objects,
    .text = "/content",
    .ids = "/tokens",
    .finish = "/stop_type",
    .prompt_tokens = "/tokens_evaluated",
    .new_tokens = "/tokens_predicted",
    .tops = "/completion_probabilities",
    .about = "/props",
    .version = "/build_info",
    .longest = "/default_generation_settings/n_ctx",
    .errors = {"/error/message"},
    .metrics = {.path = "/metrics",
                .running = "llamacpp:requests_processing",
                .waiting = "llamacpp:requests_deferred"},
};

}  // namespace kvatlas::calibrate
