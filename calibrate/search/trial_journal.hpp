// SPDX-License-Identifier: Apache-2.0
// Trials kept beside the document that they are for, so that an interrupted search loses none.
#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <string>
#include <utility>

#include <nlohmann/json.hpp>

#include "calibrate/methods/trials.hpp"

namespace kvatlas::calibrate {

/// A file of lines: what the trials are of, and then a trial each, written when it is done. It is
/// gone again where no trial was.
class TrialJournal {
 public:
  enum class Open { fresh, resume, replace };
  /// `settings` is an object that decides what trials say. Error(usage): the file is there (fresh),
  /// it is of other settings (resume; the difference is named), another process writes it.
  /// Error(unreadable) for lines that are no trials; a last line that was cut short is passed over.
  TrialJournal(std::filesystem::path path, const nlohmann::json& settings, Open how);
  ~TrialJournal();
  TrialJournal(const TrialJournal&) = delete;
  TrialJournal& operator=(const TrialJournal&) = delete;

  std::size_t known() const { return trials_.size(); }
  /// Runs what it does not know yet. It must outlive what it returns.
  RunTrials around(RunTrials run);
  /// All is done: the file is of no more use.
  void remove();

 private:
  using Key = std::pair<std::string, std::size_t>;  // the policy's hash, the sample's position
  void read(const nlohmann::json& settings);
  void read_trial(const nlohmann::json& line);
  void append(const std::string& text);

  std::filesystem::path path_;
  int file_ = -1;
  std::size_t whole_ = 0;  // bytes of lines that are complete
  std::map<Key, Trial> trials_;
};

}  // namespace kvatlas::calibrate
