// SPDX-License-Identifier: Apache-2.0
#include "calibrate/endpoint/server.hpp"

namespace kvatlas::calibrate {

// Text Generation Inference, read; it is only maintained. It refuses a temperature of 0 and a top_p
// of 1, and is greedy where nothing is to be sampled. A request can not keep its prefix cache off
// (PREFIX_CACHING=0 does, at its start).
const ServerTable kTgi = {
    .name = "tgi",
    .title = "TGI",
    .path = "/generate_stream",
    .fixed = R"({"parameters": {"do_sample": false, "repetition_penalty": 1.0, "seed": 0,
                 "details": true}})",
    .prompt = "/inputs",
    .most_tokens = "/parameters/max_new_tokens",
    .top = "/parameters/top_n_tokens",
    .most_top = 5,
    .top_form = TopForm::each_event,
    .text = {},  // with its tokens
    .finish = "/details/finish_reason",
    .prompt_tokens = "/details/input_length",
    .new_tokens = "/details/generated_tokens",
    .tops = "/token",
    .about = "/info",
    .version = "/version",
    .longest = "/max_total_tokens",
    .errors = {"/error", "/message"},
    .metrics = {.path = "/metrics", .waiting = "tgi_queue_size"},
};

}  // namespace kvatlas::calibrate
