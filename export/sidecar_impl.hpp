// SPDX-License-Identifier: Apache-2.0
// A folder that lays scales of FP8 caches over an unchanged checkpoint (docs/precision.md#scales):
// links to its files, a file of scales, and config.json and an index that name them.
#pragma once

#include "export/exporters.hpp"

namespace kvatlas::exporting {

/// Where the folder lies, beside the runtime's other files.
inline constexpr const char* kSidecarFolder = "model";

/// Error(usage) if scales are asked for and the format is not E4M3 without scales of its own.
void require_scalable(const PartRequest& request, calibrate::KvFormat format);

/// Adds the folder's files and links. Error(usage) without a checkpoint, or for one whose
/// quantisation has no place for scales. `queries`: those of queries too.
void add_sidecar(const PartRequest& request, bool queries, Exported& out);

/// Whether a layer has a scale for each KV head.
bool is_by_head(const calibrate::Fp8Scales& scales);

}  // namespace kvatlas::exporting
