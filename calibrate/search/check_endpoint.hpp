// SPDX-License-Identifier: Apache-2.0
// `kvatlas check --endpoint` and `kvatlas evaluate --endpoint`: what a server answers, with a
// verdict or without.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "calibrate/certify/gate.hpp"
#include "calibrate/endpoint/pairs.hpp"
#include "calibrate/search/evaluate_request.hpp"

namespace kvatlas::calibrate {

struct EndpointCheck {
  EndpointOptions endpoint;
  EvaluateRequest request;  // its prompts, how they are written, and the tokens of an answer
  Gate gate;
  std::string policy, junit;  // may be empty
  std::int64_t most_samples = 2000;
  bool as_json = false, force = false, dry_run = false;
};

/// Judges the server; whether it passed. A dry run judges nothing, and passes.
bool check_endpoint(EndpointCheck check);
/// Shows what the server loses, by one round of prompts. Gate, JUnit and force have no meaning
/// here.
void evaluate_endpoint(EndpointCheck check);

}  // namespace kvatlas::calibrate
