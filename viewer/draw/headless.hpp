// SPDX-License-Identifier: Apache-2.0
// Lets the commands that only write files use Qt without a display, and opens their files.
#pragma once

#include <QApplication>
#include <filesystem>
#include <memory>
#include <vector>

#include "viewer/draw/pictures.hpp"

namespace kvatlas::viewer {

/// A QApplication on the "offscreen" platform, unless QT_QPA_PLATFORM names another one. Its fonts
/// do not depend on the desktop, so that equal input gives equal pictures.
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

/// Files that were opened. What they hold tells what they are: the first profile, a second one,
/// which is the baseline, policy documents, and what policies keep of prompts.
struct OpenedFiles {
  std::unique_ptr<profile::Reader> profile, baseline;
  std::filesystem::path profile_path, baseline_path;
  std::unique_ptr<const KeptTokens> kept;
  PictureSource source;
};
OpenedFiles open_files(const std::vector<std::filesystem::path>& paths);

/// Positions of the samples of a task; of all samples if `task` is empty. Throws Error(usage),
/// which lists the tasks, if no sample has this one.
std::vector<std::size_t> sample_positions(const profile::Reader& profile, const std::string& task);

}  // namespace kvatlas::viewer
