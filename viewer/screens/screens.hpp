// SPDX-License-Identifier: Apache-2.0
// The list of screens, in the order of their keys (Ctrl+1 …).
#pragma once

#include <vector>

#include "viewer/screens/screen.hpp"

namespace kvatlas::viewer {

using MakeScreen = Screen* (*)(Session& session, QWidget* parent);
/// Each is made when it first comes to the front. The title is marked for translation with
/// QT_TRANSLATE_NOOP("Screens", …).
struct ScreenEntry {
  const char *id, *title;
  MakeScreen make;
};
const std::vector<ScreenEntry>& screens();

// clang-format off
Screen* make_overview_screen(Session& session, QWidget* parent);    // 3.1
Screen* make_maps_screen(Session& session, QWidget* parent);        // 3.2
Screen* make_rows_screen(Session& session, QWidget* parent);        // 3.3
Screen* make_lazy_screen(Session& session, QWidget* parent);        // 3.4
Screen* make_blocks_screen(Session& session, QWidget* parent);      // 3.5
Screen* make_budgets_screen(Session& session, QWidget* parent);     // 3.6
Screen* make_sweep_screen(Session& session, QWidget* parent);       // 3.7
Screen* make_comparison_screen(Session& session, QWidget* parent);  // 3.8
Screen* make_mass_screen(Session& session, QWidget* parent);        // layer x token, proximal mass
Screen* make_precision_screen(Session& session, QWidget* parent);   // number formats by layer
Screen* make_needle_screen(Session& session, QWidget* parent);      // score, length x depth
Screen* make_text_screen(Session& session, QWidget* parent);        // prompts, kept and attended tokens
// clang-format on

}  // namespace kvatlas::viewer
