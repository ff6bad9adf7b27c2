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
  /// Every pair of one of `initial` and one of `recent` is a proximity.
  std::vector<std::int64_t> initial, recent;
  /// Every combination of one of each is a kind of window scores.
  std::vector<std::int64_t> windows, kernels;
  std::vector<std::string> poolings = {"avg", "max"};
  std::string map_type = "uint8";
  profile::CaptureSettings settings;  // what no member above says

  CaptureOptions();  // the grids of the default settings
};

void add_capture_options(CLI::App& command, CaptureOptions& options);

/// The settings for a model and prompts of at most `longest` tokens. Error(usage) if the options
/// make no sense.
profile::CaptureSettings settle_capture(const CaptureOptions& options, const model::Config& config,
                                        std::int64_t longest);

}  // namespace kvatlas::capture
