// SPDX-License-Identifier: Apache-2.0
// What runtimes read that is no policy: statistics of a profile's queries and keys before RoPE
// (kvatlas profile --capture queries,covariance or heads).
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "analyzer/profile/profile.hpp"
#include "export/exporters.hpp"

namespace kvatlas::exporting {

/// The software that reads such statistics, as --to names it.
inline constexpr std::array<std::string_view, 3> kStatisticReaders = {
    "triattention", "expected-attention", "duo-attention"};
bool reads_statistics(std::string_view name);

/// The files for one of kStatisticReaders. Error(usage) if the profile lacks what it needs.
std::vector<ExportFile> export_query_statistics(const profile::Reader& profile,
                                                std::string_view reader);

}  // namespace kvatlas::exporting
