// SPDX-License-Identifier: Apache-2.0
// A file of lines that outlast the process: an interrupted run goes on with it.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <string>

#include <nlohmann/json.hpp>

namespace kvatlas {

/// Its first line says what the others are of: settings, an object. Each further line is JSON, on
/// the disk when append() returns.
class LineJournal {
 public:
  struct Kind {
    const char* schema;
    const char* lines;  // what they are called: "trials"
    const char* anew;   // what to do to begin anew: "--force begins anew"
  };
  enum class Open { fresh, resume, replace };
  /// Hands each line that is there to `take`, when resumed. Error(usage) if the file exists
  /// (fresh), if it has other settings, which are named (resume), or if another process writes it.
  /// Error(unreadable) for lines that are no JSON; a last line that was cut short is passed over.
  LineJournal(std::filesystem::path path, const Kind& kind, const nlohmann::json& settings,
              Open how, const std::function<void(const nlohmann::json&)>& take);
  ~LineJournal();
  LineJournal(const LineJournal&) = delete;
  LineJournal& operator=(const LineJournal&) = delete;

  void append(const std::string& text);
  /// Removes the file, when all is done.
  void remove();

 private:
  std::size_t read(const Kind& kind, const nlohmann::json& settings,
                   const std::function<void(const nlohmann::json&)>& take) const;

  std::filesystem::path path_;
  int file_ = -1;
};

}  // namespace kvatlas
