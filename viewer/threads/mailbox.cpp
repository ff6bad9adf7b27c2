// SPDX-License-Identifier: Apache-2.0
#include "viewer/threads/mailbox.hpp"

#include <QCoreApplication>
#include <QEvent>
#include <utility>

namespace kvatlas::viewer {

void Mailbox::post(std::function<void()> work) {
  {
    const std::lock_guard lock(mutex_);
    waiting_.push_back(std::move(work));
  }
  QCoreApplication::postEvent(this, new QEvent(QEvent::User));
}

void Mailbox::customEvent(QEvent* /*event*/) {
  std::function<void()> work;
  {
    const std::lock_guard lock(mutex_);
    if (waiting_.empty()) return;
    work = std::move(waiting_.front());
    waiting_.pop_front();
  }
  work();  // which may end this mailbox
}

}  // namespace kvatlas::viewer
