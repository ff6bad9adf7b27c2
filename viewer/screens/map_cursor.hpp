// SPDX-License-Identifier: Apache-2.0
// The one cursor that all maps in the window share.
#pragma once

#include <QObject>

namespace kvatlas::viewer {

class MapCursor : public QObject {
  Q_OBJECT

 public:
  using QObject::QObject;
  /// The pointer is over this cell of a view, in a prompt of `n_tokens` tokens; -1 if it is over
  /// none.
  void move(const QObject* by, qint64 query, qint64 key, qint64 n_tokens) {
    emit moved(by, query, key, n_tokens);
  }

 signals:
  void moved(const QObject* by, qint64 query, qint64 key, qint64 n_tokens);
};

}  // namespace kvatlas::viewer
