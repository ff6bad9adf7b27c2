// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "analyzer/capture/profile_options.hpp"
#include "analyzer/capture/profile_prompts.hpp"
#include "analyzer/capture/run_options.hpp"

namespace kvatlas::capture {

/// A profile to be taken: `kvatlas profile` as it was called.
struct ProfileRequest {
  RunOptions run;
  PromptOptions prompts;
  CaptureOptions capture;
  std::string output;
  std::string describe;  // the shape of a model; empty: a profile is taken
  bool force = false, resume = false, dry_run = false, json = false;
  bool say_result = true;  // on stdout
};
void take_profile(const ProfileRequest& order);

}  // namespace kvatlas::capture
