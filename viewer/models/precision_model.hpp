// SPDX-License-Identifier: Apache-2.0
// The numbers of the screen of number formats: what fewer bits cost each layer, and score against
// size, as calibration wrote them to a document.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "calibrate/policy/policy.hpp"
#include "viewer/models/chart.hpp"
#include "viewer/models/measured.hpp"

namespace kvatlas::viewer {

using LayerFormats = std::vector<calibrate::KvFormats>;  // [layer]

struct PrecisionModel {
  /// Keys, values or both of some layers, and what they cost where they alone are stored in each of
  /// the formats.
  using Item = calibrate::FormatItem;
  std::vector<calibrate::KvFormat> formats;  // that were tried
  std::vector<Item> items;
  std::int64_t samples = 0;  // on which they were tried
  /// A policy that was tried as a whole.
  struct Point {
    double size = kNoNumber;  // bytes, as a share of those at 16 bits
    Estimate score;
    double kl = kNoNumber, expected_kl = kNoNumber;
    LayerFormats formats;
  };
  std::vector<Point> curve;               // by ascending size
  calibrate::Precision part;              // as the document has it, with formats of layers
  std::optional<std::size_t> calibrated;  // the point that is this part
  std::optional<Estimate> full;
  double tolerance = kNoNumber;
  /// One format in all layers, measured beside the calibrated policy.
  struct Uniform {
    calibrate::KvFormat format;
    Measured measured;
  };
  std::vector<Uniform> uniform;

  std::size_t layers() const { return part.fixed->size(); }
  /// The formats of a point of the curve, or of the document's policy if there is no such point.
  const LayerFormats& formats_of(std::optional<std::size_t> point) const;
};
/// `section` is the section "precision" of a document. Error(usage) if formats were not searched
/// in it, Error(unreadable) if it is no policy.
PrecisionModel precision_model(const nlohmann::json& section);

/// Nothing for a number below 0, which stands for the document's policy, or beyond the curve, as it
/// may be after another document was opened.
std::optional<std::size_t> curve_point(const PrecisionModel& model, int chosen);

struct PrecisionView {
  Chart strip;  // what each layer's keys and values cost in each format
  Chart curve;  // score and KL divergence against size
  /// The point of the model's curve behind each point of curve.points.front().
  std::vector<std::size_t> points;
};
/// `chosen` is the point of the curve that is the policy; without it the document's policy is.
PrecisionView precision_view(const PrecisionModel& model, std::optional<std::size_t> chosen);

}  // namespace kvatlas::viewer
