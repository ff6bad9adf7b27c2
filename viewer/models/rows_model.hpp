// SPDX-License-Identifier: Apache-2.0
// The screen of the last rows: which keys the end of the prompt looks at, and which of them
// policies keep.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "analyzer/profile/profile.hpp"
#include "calibrate/rules/rules.hpp"
#include "viewer/models/chart.hpp"

namespace kvatlas::viewer {

struct RowsChoices {
  std::int64_t layer = 0;
  std::vector<std::int64_t> heads;  // a line each; empty: one line, the mean over the layer's heads
  kernels::Proximity keep = {};     // SimLayerKV's
  std::vector<std::string> selections;  // of the profile's axis, whose kept keys are marked
  std::int64_t kept_of_head = 0;        // they differ by KV head
};

struct RowsModel {
  struct Lane {
    std::string label;
    std::vector<bool> kept;  // [key]
  };
  struct Rows {
    std::string label;
    std::vector<float> shares;  // [row, key]; 0 where a row cannot see the key
  };
  RowsChoices choices;
  std::string sample;
  std::int64_t n_tokens = 0, rows = 0;  // the rows end the prompt
  std::vector<Rows> lines;
  std::vector<Lane> lanes;
};
/// Error(usage) for what was not captured, saying how it is.
RowsModel read_rows_model(const profile::Reader& profile, std::size_t position,
                          const RowsChoices& choices);

struct RowsView {
  Chart lines;    // of the chosen heads, with the first one's band; marks of what is kept below
  Chart heatmap;  // row x key of the first one, log10
  Table top;      // the first one's greatest keys
};
/// Of the keys first to last - 1. `texts`: of the prompt's tokens, may be empty.
RowsView rows_view(const RowsModel& model, std::pair<std::int64_t, std::int64_t> keys,
                   const std::vector<std::string>& texts);

}  // namespace kvatlas::viewer
