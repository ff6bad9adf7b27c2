// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>

namespace kvatlas::calibrate {

/// Where the search for a document keeps its trials until it ends: "p.json" -> "p.search.jsonl".
std::filesystem::path search_journal(const std::filesystem::path& output);

}  // namespace kvatlas::calibrate
