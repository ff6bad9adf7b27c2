// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "viewer/models/viewer_commands.hpp"

namespace kvatlas::viewer {

/// `kvatlas view`: the window.
void run_view(const ViewOptions& options);

}  // namespace kvatlas::viewer
