// SPDX-License-Identifier: Apache-2.0
// Qt without a display, for the commands that only write files.
#pragma once

#include <QApplication>
#include <filesystem>
#include <memory>
#include <vector>

#include "viewer/draw/pictures.hpp"

namespace kvatlas::viewer {

/// A QApplication on the "offscreen" platform, whatever display there is, unless QT_QPA_PLATFORM
/// says otherwise. Fonts do not depend on the desktop, so that equal input gives equal pictures.
class Headless {
 public:
  Headless();
  static QFont font();

 private:
  int count_ = 1;
  char name_[8] = "kvatlas";
  char* arguments_[2] = {name_, nullptr};
  std::unique_ptr<QApplication> application_;
};

/// Files that were opened, told apart by what they hold: the first profile, the second as its
/// baseline, documents.
struct OpenedFiles {
  std::unique_ptr<profile::Reader> profile, baseline;
  std::filesystem::path profile_path, baseline_path;
  PictureSource source;
};
OpenedFiles open_files(const std::vector<std::filesystem::path>& paths);

/// Positions of the samples of a task (empty: all); Error(usage), listing them, for one that none
/// has.
std::vector<std::size_t> sample_positions(const profile::Reader& profile, const std::string& task);

}  // namespace kvatlas::viewer
