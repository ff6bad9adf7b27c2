// SPDX-License-Identifier: Apache-2.0
// The list of screens, in the order of their keys (Ctrl+1 …).
#pragma once

#include <vector>

#include "viewer/screens/screen.hpp"

namespace kvatlas::viewer {

/// Each is made when it first comes to the front. The title is marked for translation with
/// QT_TRANSLATE_NOOP("Screens", …).
struct ScreenEntry {
  const char *id, *title;
  Screen* (*make)(Session& session, QWidget* parent);
};
const std::vector<ScreenEntry>& screens();
/// Makes the screen, with its names.
Screen* make_screen(const ScreenEntry& entry, Session& session, QWidget* parent);

}  // namespace kvatlas::viewer
