// SPDX-License-Identifier: Apache-2.0
// Notices when a file is replaced, changed or removed, and how many finished samples of a run that
// still writes it lie beside it.
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
  /// Also looks at the files every `poll_ms` milliseconds, for not every file system reports
  /// changes.
  explicit FileWatch(QObject* parent, int poll_ms = 2000);

  /// Reports every change of this file from now on. The file need not exist yet.
  void watch(const std::filesystem::path& path);
  void forget(const std::filesystem::path& path);
  /// What the file system says of the file; its content is not read.
  struct Look {
    bool there = false;
    std::int64_t modified = 0;
    std::uint64_t bytes = 0;
    std::uint64_t number = 0;  // of the inode, which another file of the same name does not share
    std::size_t parts = 0;     // finished samples beside the file
    bool operator==(const Look&) const = default;
  };
  static Look look_at(const std::filesystem::path& path);

 public slots:
  void look_now();

 signals:
  void replaced(const QString& path);  // it changed, or it exists now and did not before
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
  Errands errands_;  // the last member, for its thread uses the others
};

}  // namespace kvatlas::viewer
