// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "analyzer/profile/statistics.hpp"

namespace CLI {
class App;
}

namespace kvatlas::capture {

/// The options of `kvatlas profile` that say what is captured, as they are written.
struct CaptureOptions {
  std::vector<std::string> capture = {"default"};
  std::vector<std::string> keep;
  std::vector<std::int64_t> keep_layers;
  std::vector<std::int64_t> initial, recent;           // each with each: the proximities
  std::vector<std::int64_t> windows, kernels;          // and with each pooling: the
  std::vector<std::string> poolings = {"avg", "max"};  // window kinds
  std::string map_type = "float16";
  profile::CaptureSettings settings;  // what the options above do not make

  CaptureOptions();  // the grids of the default settings
};

void add_capture_options(CLI::App& command, CaptureOptions& options);

/// The settings for a model and prompts of at most `longest` tokens. Error(usage) for what makes no
/// sense.
profile::CaptureSettings settle_capture(const CaptureOptions& options, const model::Config& config,
                                        std::int64_t longest);

}  // namespace kvatlas::capture
