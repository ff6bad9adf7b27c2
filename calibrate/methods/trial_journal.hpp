// SPDX-License-Identifier: Apache-2.0
// Trials are kept in a file beside the document, so that an interrupted calibration or search loses
// none.
#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/line_journal.hpp"
#include "calibrate/methods/trials.hpp"

namespace kvatlas::calibrate {

/// A text that is equal for equal policies, by which lists and journals know them. What only a
/// runtime can ask for, not a document, is told apart by the runtime of trial_settings().
std::string policy_key(const Policy& policy);

/// All that decides the outcome of trials beside policy and sample. `runtime` is the one that they
/// are run as; may be empty.
nlohmann::json trial_settings(const TrialOptions& options, const std::string& runtime,
                              const profile::Reader& profile);

/// A file whose first line says what the trials are of. Each further line is a trial, written when
/// it is done. A journal that ends without a trial removes its file.
class TrialJournal {
 public:
  using Open = LineJournal::Open;
  /// What the options --force and --resume say. Error(usage) if they contradict each other, and if
  /// the document is there already and neither --force nor an unfinished journal beside it allows
  /// that it is replaced.
  static Open asked(const std::string& document, bool force, bool resume);
  /// `settings` is an object as trial_settings() gives it. Errors are those of LineJournal;
  /// Error(unreadable) also for lines that are no trials.
  TrialJournal(std::filesystem::path path, const nlohmann::json& settings, Open how);
  ~TrialJournal();
  TrialJournal(const TrialJournal&) = delete;
  TrialJournal& operator=(const TrialJournal&) = delete;

  std::size_t known() const { return trials_.size(); }
  /// A function that runs only the trials that the journal does not know. The journal must outlive
  /// it.
  RunTrials around(RunTrials run);
  /// Removes the file, when all is done.
  void remove() { file_.remove(); }

  /// The policy's hash, and the sample's position.
  using Key = std::tuple<std::string, std::size_t, Measure>;

 private:
  void read_trial(const nlohmann::json& line);

  std::map<Key, Trial> trials_;
  LineJournal file_;
};

/// Runs `fn`. Where it refuses, Error(usage), the trials that led there are removed: they would
/// only stand in the way of the next run.
template <class Fn>
decltype(auto) unless_refused(std::optional<TrialJournal>& journal, Fn&& fn) {
  try {
    return std::forward<Fn>(fn)();
  } catch (const Error& error) {
    if (journal && error.code() == ErrorCode::usage) journal->remove();
    throw;
  }
}

/// Trials that are kept beside the document while `journal` lives; the trials alone if no document
/// is written. How many are there already is said on stderr.
RunTrials kept_beside(const std::string& document, const nlohmann::json& settings,
                      TrialJournal::Open how, std::optional<TrialJournal>& journal, RunTrials run);

}  // namespace kvatlas::calibrate
