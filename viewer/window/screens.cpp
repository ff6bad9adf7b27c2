// SPDX-License-Identifier: Apache-2.0
#include "viewer/window/screens.hpp"

#include <QtGlobal>

namespace kvatlas::viewer {

const std::vector<ScreenEntry>& screens() {
  // clang-format off
  static const std::vector<ScreenEntry> entries = {
      {"maps", QT_TRANSLATE_NOOP("Screens", "Attention maps"), make_maps_screen},
  };
  // clang-format on
  return entries;
}

}  // namespace kvatlas::viewer
