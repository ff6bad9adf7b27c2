// SPDX-License-Identifier: Apache-2.0
#include "viewer/screens/screens.hpp"

#include <QtGlobal>

namespace kvatlas::viewer {

const std::vector<ScreenEntry>& screens() {
  // clang-format off
  static const std::vector<ScreenEntry> entries = {
      {"overview", QT_TRANSLATE_NOOP("Screens", "Overview"), make_overview_screen},
      {"maps", QT_TRANSLATE_NOOP("Screens", "Attention maps"), make_maps_screen},
      {"rows", QT_TRANSLATE_NOOP("Screens", "Last rows"), make_rows_screen},
      {"mass", QT_TRANSLATE_NOOP("Screens", "Proximal mass"), make_mass_screen},
      {"lazy", QT_TRANSLATE_NOOP("Screens", "Lazy layers"), make_lazy_screen},
      {"blocks", QT_TRANSLATE_NOOP("Screens", "Layer blocks"), make_blocks_screen},
      {"budgets", QT_TRANSLATE_NOOP("Screens", "Layer budgets"), make_budgets_screen},
      {"sweep", QT_TRANSLATE_NOOP("Screens", "LagKV sweep"), make_sweep_screen},
      {"precision", QT_TRANSLATE_NOOP("Screens", "Number formats"), make_precision_screen},
      {"comparison", QT_TRANSLATE_NOOP("Screens", "Comparison"), make_comparison_screen},
      {"needle", QT_TRANSLATE_NOOP("Screens", "Needle"), make_needle_screen},
      {"text", QT_TRANSLATE_NOOP("Screens", "Text"), make_text_screen},
  };
  // clang-format on
  return entries;
}

}  // namespace kvatlas::viewer
