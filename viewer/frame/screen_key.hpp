// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <QString>
#include <cstddef>

namespace kvatlas::viewer {

/// The key that brings a screen of the list to the front: Ctrl and the keyboard's row of digits,
/// which ends in 0, - and =. Empty for a screen beyond that row.
inline QString screen_key(std::size_t at) {
  const QString row = QStringLiteral("1234567890-=");
  const auto place = static_cast<qsizetype>(at);
  return place < row.size() ? QStringLiteral("Ctrl+") + row[place] : QString();
}

}  // namespace kvatlas::viewer
