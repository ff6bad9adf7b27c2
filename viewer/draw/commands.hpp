// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "viewer/models/viewer_commands.hpp"

namespace kvatlas::viewer {

/// `kvatlas render`: one picture into a file, without a display.
void run_render(const RenderOptions& options);
/// `kvatlas report`: one HTML page of a profile and the documents made from it.
void run_report(const ReportOptions& options);

}  // namespace kvatlas::viewer
