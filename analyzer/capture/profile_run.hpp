// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "analyzer/capture/engine.hpp"
#include "analyzer/profile/profile.hpp"
#include "analyzer/profile/statistics.hpp"
#include "data/prompts.hpp"

namespace kvatlas::capture {

/// One prompt of a profile, ready to run.
struct ProfilePrompt {
  data::Prompt prompt;
  std::vector<std::int64_t> tokens;
  std::int64_t cut_tokens = 0;  // lost from its middle
};

struct ProfilePlan {
  profile::CaptureSettings settings;
  std::vector<ProfilePrompt> prompts;
  std::vector<std::int64_t> end_tokens;  // the continuation ends after one of them
  EngineOptions engine;
  std::int64_t batch = 1;  // prompts that go through the layers together

  bool with_maps(std::int64_t index) const { return index < settings.map_samples; }
};

/// What the plan will take, before any of it is done.
struct ProfileEstimate {
  MemoryPlan memory;
  double seconds = 0;  // estimated from a matrix product that is timed now
  std::int64_t file_bytes = 0;
};

/// Decides how large a batch is and whether weights are streamed, so that the run stays within
/// --memory-budget. Error(resource) if that is not possible.
void fit_memory(ProfilePlan& plan, const model::ModelFile& model);
ProfileEstimate estimate(const ProfilePlan& plan, const model::ModelFile& model);

/// The file's header for the plan; `prompts` describes where the prompts came from.
profile::Header profile_header(const ProfilePlan& plan, const model::ModelFile& model,
                               const std::string& prompts);

struct ProfileObserver {
  std::function<void(std::int64_t layers_done, std::int64_t tokens)> layer;  // tokens: of the batch
  std::function<void(const profile::Sample&)> finished;                      // written and safe
};

/// Runs the samples whose indices `next` hands out, until it hands out none, and writes each.
void run_profile(Engine& engine, const ProfilePlan& plan, profile::Writer& writer,
                 const std::function<std::optional<std::int64_t>()>& next,
                 const ProfileObserver& observer);

}  // namespace kvatlas::capture
