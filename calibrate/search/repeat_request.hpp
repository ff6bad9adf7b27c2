// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "analyzer/model/model_file.hpp"
#include "calibrate/simulate/simulate.hpp"

namespace kvatlas::calibrate {

/// How the model is asked to repeat this prompt: as a user's message in the chat format, or in the
/// model's own if that is "none", if the prompt begins as such messages do; else as bare text.
/// Error(usage) for a model without a tokenizer.
RepeatRequest repeat_request(const model::ModelFile& model, const std::string& chat,
                             std::span<const std::int64_t> prompt);

}  // namespace kvatlas::calibrate
