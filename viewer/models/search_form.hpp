// SPDX-License-Identifier: Apache-2.0
// What a search for the best policy is asked to find, written as a command line of `kvatlas
// calibrate auto`.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace kvatlas::viewer {

struct SearchForm {
  std::string model;
  std::string profile;           // empty if the model is to be profiled first
  std::string memory;            // memory for weights and caches, such as "24GiB"; or
  std::optional<double> saving;  // the share of the cache that is to be saved
  std::int64_t context = 0, batch = 1;
  double max_loss = 1;  // points of the score that may be lost
  std::string runtime;  // empty if it is to run in no runtime in particular
  std::filesystem::path output;
  bool replace = false;
};

/// The words after the program's name. A search that was interrupted and has the same output file
/// goes on. Error(usage) says what is missing.
std::vector<std::string> search_words(const SearchForm& form);

}  // namespace kvatlas::viewer
