// SPDX-License-Identifier: Apache-2.0
// A profile with attention maps and last rows, small enough to be written by a test.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace kvatlas::viewer::testing_gui {

inline constexpr std::int64_t kMapLayers = 4, kMapHeads = 4, kMapKvHeads = 2, kLastRows = 4;

/// A sample of each length, with maps of all heads. Head h of layer l gives its first key a share
/// that grows with 4 l + h; samples of more than 4096 tokens have rows and no maps. With `kept`
/// every selection keeps the keys that its number, counted from 2, divides. `word` is the text of
/// every token, and a part of the samples' names.
void write_map_profile(const std::filesystem::path& path, const std::vector<std::int64_t>& lengths,
                       bool kept = false, const std::string& word = {});

}  // namespace kvatlas::viewer::testing_gui
