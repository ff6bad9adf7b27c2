// SPDX-License-Identifier: Apache-2.0
#include "viewer/threads/latest.hpp"

#include <exception>
#include <utility>

namespace kvatlas::viewer {

Latest::Latest(QObject* parent) : QObject(parent), thread_([this] { run(); }) {}

Latest::~Latest() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Latest::request(std::function<std::function<void()>()> compute) {
  {
    const std::lock_guard lock(mutex_);
    waiting_ = std::move(compute);
  }
  changed_.notify_all();
}

bool Latest::busy() const {
  const std::lock_guard lock(mutex_);
  return running_ || waiting_;
}

bool Latest::overtaken(int number) const {
  const std::lock_guard lock(mutex_);
  return number != finished_;
}

void Latest::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stop_ || waiting_; });
    if (stop_) return;
    const auto compute = std::exchange(waiting_, nullptr);
    running_ = true;
    lock.unlock();
    std::function<void()> deliver;
    try {
      deliver = compute();
    } catch (const std::exception& error) {
      deliver = [this, text = QString::fromUtf8(error.what())] { emit failed(text); };
    }
    lock.lock();
    running_ = false;
    if (stop_) return;
    mailbox_.post([this, number = ++finished_, deliver = std::move(deliver)] {
      if (!overtaken(number)) deliver();
      if (!busy() && !overtaken(number)) emit idle();
    });
  }
}

}  // namespace kvatlas::viewer
