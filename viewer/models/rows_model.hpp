// SPDX-License-Identifier: Apache-2.0
// The numbers of the screen of the last rows: which keys the end of the prompt looks at, and which
// of them policies keep.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "analyzer/profile/profile.hpp"
#include "calibrate/rules/read_evidence.hpp"
#include "viewer/models/chart.hpp"

namespace kvatlas::viewer {

struct RowsChoices {
  std::int64_t layer = 0;
  /// Each has a line; if there are none, one line is the mean over the layer's heads.
  std::vector<std::int64_t> heads;
  kernels::Proximity keep = {};  // the tokens that SimLayerKV keeps in a lazy layer
  /// Labels of the profile's selections whose kept keys are marked.
  std::vector<std::string> selections;
  /// The query head for whose KV head the kept keys are marked.
  std::int64_t kept_of_head = 0;
};

struct RowsModel {
  struct Lane {
    std::string label;
    std::vector<bool> kept;  // [key]
  };
  struct Rows {
    std::string label;
    calibrate::StoredRows shares;  // [row, key]; 0 where a row cannot see the key
  };
  RowsChoices choices;
  std::string sample;
  /// Tokens of the prompt, and how many rows at its end there are.
  std::int64_t n_tokens = 0, rows = 0;
  std::vector<Rows> lines;
  std::vector<Lane> lanes;
};
/// Error(usage) for rows that were not captured says how to capture them.
RowsModel read_rows_model(const profile::Reader& profile, std::size_t position,
                          const RowsChoices& choices);

/// [key]: the attention that it takes from the first line, in the mean over the rows that see it;
/// NaN where that is not known.
std::vector<double> mean_shares(const RowsModel& model);

struct RowsView {
  /// Lines of the chosen heads with the first one's band, and below them marks of the keys that are
  /// kept.
  Chart lines;
  Chart heatmap;  // the first head's rows by keys, as log10
  Table top;      // the keys with the most attention of the first head
};
/// Shows the keys from keys.first to keys.second - 1. `texts` are those of the prompt's tokens and
/// may be empty.
RowsView rows_view(const RowsModel& model, std::pair<std::int64_t, std::int64_t> keys,
                   const std::vector<std::string>& texts);

}  // namespace kvatlas::viewer
