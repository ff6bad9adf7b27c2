// SPDX-License-Identifier: Apache-2.0
// Lets other threads run functions in the window's thread.
#pragma once

#include <QObject>
#include <deque>
#include <functional>
#include <mutex>

namespace kvatlas::viewer {

class Mailbox : public QObject {
 public:
  using QObject::QObject;

  /// Has `work` run by the event loop of the mailbox's thread, in the order of the calls. May be
  /// called from any thread. Work that has not run when the mailbox is destroyed never runs.
  void post(std::function<void()> work);

 protected:
  void customEvent(QEvent* event) override;

 private:
  std::mutex mutex_;
  std::deque<std::function<void()>> waiting_;
};

}  // namespace kvatlas::viewer
