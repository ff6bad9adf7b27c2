// SPDX-License-Identifier: Apache-2.0
// Calibration of number formats: which layers' keys and values bear how few bits
// (docs/precision.md).
#pragma once

#include <optional>
#include <vector>

#include "calibrate/methods/trials.hpp"
#include "calibrate/rules/evidence.hpp"
#include "calibrate/runtimes/runtimes.hpp"

namespace kvatlas::calibrate {

struct PrecisionRequest {
  /// What may be chosen beside 16 bits, and whether layers, and keys and values, may differ.
  FormatsTaken taken = {{KvFormat::q8_0, KvFormat::int4, KvFormat::int2}, true, true};
  std::optional<double> size;  // at most this share of the bytes at 16 bits; else searched for
  double tolerance = 0;        // share of the score that may be lost
  std::size_t texts = 4;       // on so many samples each layer is tried by itself
};

/// Formats of all layers, and the KL divergence that they are expected to cost.
struct ExpectedFormats {
  Precision part;
  double size = 1;  // bytes, as a share of those at 16 bits
  double kl = 0;
};
/// Formats of several sizes, the smallest first, by what each layer alone costs on some of these
/// samples.
std::vector<ExpectedFormats> expected_formats(const Evidence& evidence,
                                              const PrecisionRequest& request, const RunTrials& run,
                                              const std::vector<std::size_t>& samples);

/// Needs a model: what a format costs is the KL divergence of trials.
Calibrated calibrate_precision(const Evidence& evidence, const PrecisionRequest& request,
                               const RunTrials& run);

}  // namespace kvatlas::calibrate
