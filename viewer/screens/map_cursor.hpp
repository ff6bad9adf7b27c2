// SPDX-License-Identifier: Apache-2.0
// One cursor for all maps in the window.
#pragma once

#include <QObject>

namespace kvatlas::viewer {

class MapCursor : public QObject {
  Q_OBJECT

 public:
  using QObject::QObject;
  /// A view's pointer is over this cell of a prompt of so many tokens; -1: over none.
  void move(const QObject* by, qint64 query, qint64 key, qint64 n_tokens) {
    emit moved(by, query, key, n_tokens);
  }

 signals:
  void moved(const QObject* by, qint64 query, qint64 key, qint64 n_tokens);
};

}  // namespace kvatlas::viewer
