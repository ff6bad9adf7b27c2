// SPDX-License-Identifier: Apache-2.0
// The header of a made-up profile.
#pragma once

#include <cstdint>
#include <string>

#include "analyzer/config/config.hpp"
#include "analyzer/profile/statistics.hpp"

namespace kvatlas::testing_support {

struct MadeUpModel {
  std::int64_t layers = 1, heads = 1, kv_heads = 1;
  std::int64_t head_dim = 8, vocab_size = 100, context_length = 8192;
  std::string name = "small";
};

inline profile::Header header_of(const MadeUpModel& model, const profile::CaptureSettings& settings,
                                 std::int64_t samples) {
  model::Config config;
  config.n_layers = model.layers;
  config.n_heads = model.heads;
  config.n_kv_heads = model.kv_heads;
  config.head_dim = config.rotary_dim = model.head_dim;
  config.vocab_size = model.vocab_size;
  profile::Header header;
  header.tool_version = "0.1.0";
  header.model_name = model.name;
  header.architecture = "llama";
  header.model_fingerprint = "0123456789abcdef";
  header.n_layers = model.layers;
  header.n_heads = model.heads;
  header.n_kv_heads = model.kv_heads;
  header.head_dim = model.head_dim;
  header.vocab_size = model.vocab_size;
  header.context_length = model.context_length;
  header.window.assign(static_cast<std::size_t>(model.layers), 0);
  header.backend = "cpu, float32";
  header.capture = settings.json();
  header.prompts = "{}";
  header.planned_samples = samples;
  header.axes = profile::axis_tables(settings);
  header.arrays = profile::descriptions(settings, config);
  return header;
}

}  // namespace kvatlas::testing_support
