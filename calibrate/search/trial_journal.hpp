// SPDX-License-Identifier: Apache-2.0
// Trials are kept in a file beside the document, so that an interrupted search loses none.
#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <string>
#include <utility>

#include <nlohmann/json.hpp>

#include "calibrate/methods/trials.hpp"

namespace kvatlas::calibrate {

/// A file whose first line says what the trials are of. Each further line is a trial, written when
/// it is done. A journal that ends without a trial removes its file.
class TrialJournal {
 public:
  enum class Open { fresh, resume, replace };
  /// `settings` is an object with all that decides the outcome of trials. Error(usage) if the file
  /// exists (fresh), if it has other settings, which are named (resume), or if another process
  /// writes it. Error(unreadable) for lines that are no trials; a last line that was cut short is
  /// passed over.
  TrialJournal(std::filesystem::path path, const nlohmann::json& settings, Open how);
  ~TrialJournal();
  TrialJournal(const TrialJournal&) = delete;
  TrialJournal& operator=(const TrialJournal&) = delete;

  std::size_t known() const { return trials_.size(); }
  /// A function that runs only the trials that the journal does not know. The journal must outlive
  /// it.
  RunTrials around(RunTrials run);
  /// Removes the file, when all is done.
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
