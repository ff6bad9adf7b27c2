// SPDX-License-Identifier: Apache-2.0
#include "viewer/screens/screens.hpp"

#include <QCoreApplication>

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
Screen* make_kind(Session& session, QWidget* parent) {
  return new Kind(session, parent);
}

}  // namespace

Screen* make_screen(const ScreenEntry& entry, Session& session, QWidget* parent) {
  Screen* screen = entry.make(session, parent);
  screen->set_names(QString::fromUtf8(entry.id),
                    QCoreApplication::translate("Screens", entry.title));
  return screen;
}

const std::vector<ScreenEntry>& screens() {
  // clang-format off
  static const std::vector<ScreenEntry> entries = {
      {"overview", QT_TRANSLATE_NOOP("Screens", "Overview"), make_kind<OverviewScreen>},
      {"maps", QT_TRANSLATE_NOOP("Screens", "Attention maps"), make_kind<MapsScreen>},
      {"rows", QT_TRANSLATE_NOOP("Screens", "Last rows"), make_kind<RowsScreen>},
      {"mass", QT_TRANSLATE_NOOP("Screens", "Proximal mass"), make_kind<MassScreen>},
      {"lazy", QT_TRANSLATE_NOOP("Screens", "Lazy layers"), make_kind<LazyScreen>},
      {"blocks", QT_TRANSLATE_NOOP("Screens", "Layer blocks"), make_kind<BlocksScreen>},
      {"budgets", QT_TRANSLATE_NOOP("Screens", "Layer budgets"), make_kind<BudgetsScreen>},
      {"sweep", QT_TRANSLATE_NOOP("Screens", "LagKV sweep"), make_kind<SweepScreen>},
      {"precision", QT_TRANSLATE_NOOP("Screens", "Number formats"), make_kind<PrecisionScreen>},
      {"comparison", QT_TRANSLATE_NOOP("Screens", "Comparison"), make_kind<ComparisonScreen>},
      {"needle", QT_TRANSLATE_NOOP("Screens", "Needle"), make_kind<NeedleScreen>},
      {"text", QT_TRANSLATE_NOOP("Screens", "Text"), make_kind<TextScreen>},
  };
  // clang-format on
  return entries;
}

}  // namespace kvatlas::viewer
