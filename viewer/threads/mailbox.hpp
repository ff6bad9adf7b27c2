// SPDX-License-Identifier: Apache-2.0
// What threads have to say to the window, in its own thread.
#pragma once

#include <QObject>
#include <deque>
#include <functional>
#include <mutex>

namespace kvatlas::viewer {

class Mailbox : public QObject {
 public:
  using QObject::QObject;

  /// From any thread: `work` runs in the mailbox's thread when its event loop comes to it, in the
  /// order of the calls; not at all once the mailbox has gone.
  void post(std::function<void()> work);

 protected:
  void customEvent(QEvent* event) override;

 private:
  std::mutex mutex_;
  std::deque<std::function<void()>> waiting_;
};

}  // namespace kvatlas::viewer
