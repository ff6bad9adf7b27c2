// SPDX-License-Identifier: Apache-2.0
// What a search for the best policy is asked for, as the words of `kvatlas calibrate auto`.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace kvatlas::viewer {

struct SearchRequest {
  std::string model;
  std::string profile;           // empty: the model is profiled first
  std::string memory;            // "24GiB" for weights and caches, or
  std::optional<double> saving;  // the share of the cache to save
  std::int64_t context = 0, batch = 1;
  double max_loss = 1;  // points
  std::string runtime;  // empty: none
  std::filesystem::path output;
  bool replace = false;
};

/// The words behind the program's name. A search of the same output that was interrupted goes on.
/// Error(usage) for what is missing.
std::vector<std::string> search_words(const SearchRequest& order);

}  // namespace kvatlas::viewer
