// SPDX-License-Identifier: Apache-2.0
#include "viewer/screens/screens.hpp"

#include <QtGlobal>

#include "viewer/screens/blocks_screen.hpp"
#include "viewer/screens/budgets_screen.hpp"
#include "viewer/screens/comparison_screen.hpp"
#include "viewer/screens/lazy_screen.hpp"
#include "viewer/screens/maps_screen.hpp"
#include "viewer/screens/mass_screen.hpp"
#include "viewer/screens/needle_screen.hpp"
#include "viewer/screens/overview_screen.hpp"
#include "viewer/screens/precision_screen.hpp"
#include "viewer/screens/rows_screen.hpp"
#include "viewer/screens/sweep_screen.hpp"
#include "viewer/screens/text_screen.hpp"

namespace kvatlas::viewer {
namespace {

template <class Kind>
Screen* make_screen(Session& session, QWidget* parent) {
  return new Kind(session, parent);
}

}  // namespace

const std::vector<ScreenEntry>& screens() {
  // clang-format off
  static const std::vector<ScreenEntry> entries = {
      {"overview", QT_TRANSLATE_NOOP("Screens", "Overview"), make_screen<OverviewScreen>},
      {"maps", QT_TRANSLATE_NOOP("Screens", "Attention maps"), make_screen<MapsScreen>},
      {"rows", QT_TRANSLATE_NOOP("Screens", "Last rows"), make_screen<RowsScreen>},
      {"mass", QT_TRANSLATE_NOOP("Screens", "Proximal mass"), make_screen<MassScreen>},
      {"lazy", QT_TRANSLATE_NOOP("Screens", "Lazy layers"), make_screen<LazyScreen>},
      {"blocks", QT_TRANSLATE_NOOP("Screens", "Layer blocks"), make_screen<BlocksScreen>},
      {"budgets", QT_TRANSLATE_NOOP("Screens", "Layer budgets"), make_screen<BudgetsScreen>},
      {"sweep", QT_TRANSLATE_NOOP("Screens", "LagKV sweep"), make_screen<SweepScreen>},
      {"precision", QT_TRANSLATE_NOOP("Screens", "Number formats"), make_screen<PrecisionScreen>},
      {"comparison", QT_TRANSLATE_NOOP("Screens", "Comparison"), make_screen<ComparisonScreen>},
      {"needle", QT_TRANSLATE_NOOP("Screens", "Needle"), make_screen<NeedleScreen>},
      {"text", QT_TRANSLATE_NOOP("Screens", "Text"), make_screen<TextScreen>},
  };
  // clang-format on
  return entries;
}

}  // namespace kvatlas::viewer
