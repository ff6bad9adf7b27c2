// SPDX-License-Identifier: Apache-2.0
#include "viewer/maps/tile_loader.hpp"

#include <algorithm>
#include <exception>
#include <unordered_set>
#include <utility>

namespace kvatlas::viewer {

TileLoader::TileLoader(std::unique_ptr<TileSource> source, Deliver deliver)
    : source_(std::move(source)), deliver_(std::move(deliver)), thread_([this] { run(); }) {}

TileLoader::~TileLoader() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    jobs_.clear();
    askers_.clear();
  }
  changed_.notify_all();
  thread_.join();
}

void TileLoader::post(std::function<void()> job) {
  {
    const std::lock_guard lock(mutex_);
    jobs_.push_back(std::move(job));
  }
  changed_.notify_all();
}

std::uint64_t TileLoader::request(std::vector<TileRequest> wanted, const void* asker) {
  std::stable_sort(wanted.begin(), wanted.end(), [](const TileRequest& a, const TileRequest& b) {
    return a.priority < b.priority;
  });
  std::uint64_t generation = 0;
  {
    const std::lock_guard lock(mutex_);
    forget(asker);
    std::unordered_set<TileKey, TileKeyHash> taken;
    if (reading_) taken.insert(*reading_);
    Asker asks{asker, {}};
    for (const TileRequest& request : wanted)
      if (taken.insert(request.key).second) asks.waiting.push_back(request);
    if (!asks.waiting.empty()) askers_.push_back(std::move(asks));
    generation = ++generation_;
  }
  changed_.notify_all();
  return generation;
}

void TileLoader::cancel(const void* asker) {
  const std::lock_guard lock(mutex_);
  forget(asker);
}

void TileLoader::forget(const void* who) {
  std::erase_if(askers_, [who](const Asker& asker) { return asker.who == who; });
}

TileKey TileLoader::take_next() {
  const auto next =
      std::min_element(askers_.begin(), askers_.end(), [](const Asker& a, const Asker& b) {
        return a.waiting.front().priority < b.waiting.front().priority;
      });
  const TileKey key = next->waiting.front().key;
  std::rotate(next, next + 1, askers_.end());  // the others come first now
  for (Asker& asker : askers_)
    std::erase_if(asker.waiting, [&](const TileRequest& request) { return request.key == key; });
  std::erase_if(askers_, [](const Asker& asker) { return asker.waiting.empty(); });
  return key;
}

std::size_t TileLoader::waiting() const {
  const std::lock_guard lock(mutex_);
  std::unordered_set<TileKey, TileKeyHash> keys;
  for (const Asker& asker : askers_)
    for (const TileRequest& request : asker.waiting) keys.insert(request.key);
  return keys.size() + (reading_ ? 1 : 0);
}

void TileLoader::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stop_ || !jobs_.empty() || !askers_.empty(); });
    if (stop_) return;
    if (!jobs_.empty()) {
      const auto job = std::move(jobs_.front());
      jobs_.pop_front();
      lock.unlock();
      job();
      lock.lock();
      continue;
    }
    TileResult result;
    result.key = take_next();
    reading_ = result.key;
    lock.unlock();
    try {
      result.tile = std::make_shared<const Tile>(source_->read(result.key));
    } catch (const std::exception& error) {
      result.failure = error.what();
    }
    lock.lock();
    reading_.reset();
    if (stop_) return;
    result.generation = generation_;
    lock.unlock();
    deliver_(std::move(result));
    lock.lock();
  }
}

}  // namespace kvatlas::viewer
