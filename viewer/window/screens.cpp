// SPDX-License-Identifier: Apache-2.0
#include "viewer/window/screens.hpp"

#include <QtGlobal>

namespace kvatlas::viewer {

const std::vector<ScreenEntry>& screens() {
  // clang-format off
  static const std::vector<ScreenEntry> entries = {
      {"overview", QT_TRANSLATE_NOOP("Screens", "Overview"), make_overview_screen},
  };
  // clang-format on
  return entries;
}

}  // namespace kvatlas::viewer
