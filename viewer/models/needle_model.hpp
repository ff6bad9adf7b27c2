// SPDX-License-Identifier: Apache-2.0
// Whether what is hidden is found: scores over prompt length and depth, of the full cache and of
// policies, as evaluation left them in documents.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "calibrate/policy/policy.hpp"
#include "viewer/models/chart.hpp"
#include "viewer/models/measured.hpp"

namespace kvatlas::viewer {

struct NeedleModel {
  struct Map {
    std::string policy;
    std::vector<Measured::At> cells;
  };
  std::vector<Map> maps;  // the full cache first
};
/// Error(usage), saying how they are measured, if no document has scores by length and depth.
NeedleModel needle_model(std::span<const calibrate::Document> documents);

/// A matrix a policy: rows are depths, columns lengths. `difference`: less the full cache's score.
Chart needle_chart(const NeedleModel& model, bool difference);

}  // namespace kvatlas::viewer
