// SPDX-License-Identifier: Apache-2.0
// Notices that a file is replaced, grows or goes, and how many samples of an unfinished run lie
// beside it.
#pragma once

#include <QFileSystemWatcher>
#include <QObject>
#include <QTimer>
#include <filesystem>
#include <map>
#include <string>

#include "viewer/threads/errands.hpp"
#include "viewer/threads/mailbox.hpp"

namespace kvatlas::viewer {

class FileWatch : public QObject {
  Q_OBJECT

 public:
  /// Looks by itself every so many milliseconds: not all file systems tell.
  explicit FileWatch(QObject* parent, int poll_ms = 2000);

  /// From now on as it is now; a file that is not there yet may come.
  void watch(const std::filesystem::path& path);
  void forget(const std::filesystem::path& path);
  /// What the file looks like, without reading it.
  struct Look {
    bool there = false;
    std::int64_t modified = 0;
    std::uint64_t bytes = 0, number = 0;  // the inode's: another file of the same name
    std::size_t parts = 0;                // finished samples beside it
    bool operator==(const Look&) const = default;
  };
  static Look look_at(const std::filesystem::path& path);

 public slots:
  void look_now();

 signals:
  void replaced(const QString& path);  // or came
  void removed(const QString& path);
  void parts_changed(const QString& path, int parts);

 private:
  void take(const std::string& path, const Look& look);
  void tell_system(const std::string& path);

  QFileSystemWatcher system_;
  QTimer poll_, soon_;
  std::map<std::string, Look> looks_;
  bool looking_ = false;
  Mailbox mailbox_;
  Errands errands_;  // last: its thread uses the others
};

}  // namespace kvatlas::viewer
