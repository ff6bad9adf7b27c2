// SPDX-License-Identifier: Apache-2.0
#include "calibrate/endpoint/server.hpp"

namespace kvatlas::calibrate {

// Ollama, read. It cuts a prompt that is longer than num_ctx without a word, so each request asks
// for room and the tokens that it counts are compared. Its log-probabilities name texts alone.
const ServerTable kOllama = {
    .name = "ollama",
    .title = "Ollama",
    .owner = "library",
    .path = "/api/generate",
    .form = EventReader::Form::lines,
    .fixed = R"({"raw": true, "stream": true, "options": {"temperature": 0, "top_p": 1, "top_k": 0,
                 "min_p": 0, "repeat_penalty": 1, "seed": 0}})",
    .prompt = "/prompt",
    .most_tokens = "/options/num_predict",
    .model = "/model",
    .context = "/options/num_ctx",
    .no_top = "its log-probabilities name tokens by texts, not by ids",
    .text = "/response",
    .finish = "/done_reason",
    .prompt_tokens = "/prompt_eval_count",
    .new_tokens = "/eval_count",
    .about = "/api/version",
    .version = "/version",
    .errors = {"/error", "/error/message"},
};

}  // namespace kvatlas::calibrate
