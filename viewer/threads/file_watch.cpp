// SPDX-License-Identifier: Apache-2.0
#include "viewer/threads/file_watch.hpp"

#include <sys/stat.h>
#include <vector>

namespace kvatlas::viewer {

namespace {

constexpr int kSettleMilliseconds = 100;  // a file is replaced in several steps

std::filesystem::path parts_of(std::filesystem::path path) {
  path += ".parts";
  return path;
}

}  // namespace

FileWatch::FileWatch(QObject* parent, int poll_ms) : QObject(parent) {
  soon_.setSingleShot(true);
  soon_.setInterval(kSettleMilliseconds);
  connect(&soon_, &QTimer::timeout, this, &FileWatch::look_now);
  connect(&poll_, &QTimer::timeout, this, &FileWatch::look_now);
  connect(&system_, &QFileSystemWatcher::fileChanged, &soon_, qOverload<>(&QTimer::start));
  connect(&system_, &QFileSystemWatcher::directoryChanged, &soon_, qOverload<>(&QTimer::start));
  poll_.start(poll_ms);
}

FileWatch::Look FileWatch::look_at(const std::filesystem::path& path) {
  Look look;
  struct stat status = {};
  if (stat(path.c_str(), &status) == 0) {
    look.there = true;
    look.modified =
        static_cast<std::int64_t>(status.st_mtim.tv_sec) * 1000000000 + status.st_mtim.tv_nsec;
    look.bytes = static_cast<std::uint64_t>(status.st_size);
    look.number = status.st_ino;
  }
  std::error_code problem;
  for (std::filesystem::directory_iterator at(parts_of(path), problem), end; !problem && at != end;
       at.increment(problem))
    if (at->path().extension() == ".h5") ++look.parts;
  return look;
}

void FileWatch::watch(const std::filesystem::path& path) {
  looks_[path.string()] = look_at(path);
  tell_system(path.string());
}

void FileWatch::tell_system(const std::string& path) {
  const auto parts = parts_of(path).string();
  for (const auto& name : {path, parts}) {
    const auto text = QString::fromStdString(name);
    std::error_code problem;
    if (std::filesystem::exists(name, problem) && !system_.files().contains(text) &&
        !system_.directories().contains(text))
      system_.addPath(text);
  }
}

void FileWatch::forget(const std::filesystem::path& path) {
  looks_.erase(path.string());
  for (const auto& name : {path.string(), parts_of(path).string()})
    system_.removePath(QString::fromStdString(name));
}

void FileWatch::look_now() {
  if (looking_ || looks_.empty()) return;
  looking_ = true;
  std::vector<std::string> paths;
  for (const auto& [path, look] : looks_) paths.push_back(path);
  errands_.start([this, paths] {
    std::vector<std::pair<std::string, Look>> looks;
    for (const auto& path : paths) looks.emplace_back(path, look_at(path));
    mailbox_.post([this, looks = std::move(looks)] {
      looking_ = false;
      for (const auto& [path, look] : looks) take(path, look);
    });
  });
}

void FileWatch::take(const std::string& path, const Look& look) {
  const auto found = looks_.find(path);
  if (found == looks_.end()) return;  // forgotten meanwhile
  const Look before = found->second;
  found->second = look;
  tell_system(path);  // a replaced file is another one for the system
  const auto text = QString::fromStdString(path);
  if (look.parts != before.parts) emit parts_changed(text, static_cast<int>(look.parts));
  if (before.there && !look.there) emit removed(text);
  if (look.there && (!before.there || look.modified != before.modified ||
                     look.bytes != before.bytes || look.number != before.number))
    emit replaced(text);
}

}  // namespace kvatlas::viewer
