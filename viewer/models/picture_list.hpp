// SPDX-License-Identifier: Apache-2.0
// The pictures that `kvatlas render` makes and a report is made of, by name. viewer/draw makes
// them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace kvatlas::viewer {

enum class PictureKind : std::uint8_t {
  lazy,
  lazy_layers,
  lazy_rates,
  lazy_scores,
  blocks,
  blocks_sweep,
  blocks_counts,
  gate,
  budgets,
  budgets_lines,
  budgets_shares,
  sweep,
  precision,
  precision_curve,
  overview,
  comparison,
  comparison_read,
  comparison_layers,
  comparison_memory,
  comparison_turns,
  needle,
  difference,
  mass,
  map,
  grid,
  rows,
  text,
  kept,
};

struct PictureEntry {
  PictureKind kind;
  const char *name, *title;
  const char* needs;      // the files, and what a profile must have captured
  bool in_report = true;  // false: another picture of the report shows the same
};

/// All pictures, in the order in which they are listed.
const std::vector<PictureEntry>& picture_list();
/// Error(usage), with the names of all pictures, if none has this name.
const PictureEntry& picture_named(const std::string& name);

}  // namespace kvatlas::viewer
