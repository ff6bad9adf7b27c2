// SPDX-License-Identifier: Apache-2.0
#include "viewer/draw/headless.hpp"

#include <cstdlib>
#include <iostream>
#include <set>

#include "base/error.hpp"
#include "base/plain_text.hpp"
#include "base/str.hpp"

namespace kvatlas::viewer {

namespace {
/// Qt's remarks on the desktop are nothing to a command's user.
void only_failures(QtMsgType type, const QMessageLogContext& /*context*/, const QString& text) {
  if (type == QtCriticalMsg || type == QtFatalMsg)
    std::cerr << "kvatlas: " << text.toStdString() << '\n';
}
}  // namespace

Headless::Headless() {
  qInstallMessageHandler(only_failures);
  setenv("QT_QPA_PLATFORM", "offscreen", 1);  // whatever is set for windows
  application_ = std::make_unique<QApplication>(count_, arguments_);
}

QFont Headless::font() { return {"DejaVu Sans", 10}; }

OpenedFiles open_files(const std::vector<std::filesystem::path>& paths) {
  OpenedFiles files;
  for (const auto& path : paths) {
    if (profile::is_profile(path)) {
      if (files.baseline)
        fail(ErrorCode::usage, quoted(path.string(), 400),
             " is a third profile; expected at most one and its baseline");
      const bool first = !files.profile;
      (first ? files.profile : files.baseline) = std::make_unique<profile::Reader>(path);
      (first ? files.profile_path : files.baseline_path) = path;
    } else if (holds_kept_tokens(path)) {
      if (files.kept)
        fail(ErrorCode::usage, quoted(path.string(), 400),
             " is a second file of kept tokens; expected at most one");
      files.kept = std::make_unique<const KeptTokens>(read_kept_tokens(path));
    } else {
      files.source.documents.push_back(calibrate::read_document(path));
      files.source.document_paths.push_back(path);
    }
  }
  files.source.profile = files.profile.get();
  files.source.baseline = files.baseline.get();
  files.source.kept = files.kept.get();
  return files;
}

std::vector<std::size_t> sample_positions(const profile::Reader& profile, const std::string& task) {
  std::vector<std::size_t> out;
  std::set<std::string> tasks;
  for (std::size_t i = 0; i < profile.samples().size(); ++i) {
    tasks.insert(profile.samples()[i].task);
    if (task.empty() || profile.samples()[i].task == task) out.push_back(i);
  }
  if (!out.empty() || task.empty()) return out;
  fail(ErrorCode::usage, "no sample has the task ", quoted(task), "; the profile has ",
       join(tasks, ", ", [](const std::string& name) { return printable(name); }));
}

}  // namespace kvatlas::viewer
