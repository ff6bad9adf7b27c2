// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace kvatlas::data {

/// The bundled texts, which are plain ASCII (data/texts/README.md).
std::string_view prose_text();
std::string_view code_text();

/// The table of LongBench's datasets, as JSON.
std::string_view longbench_text();

}  // namespace kvatlas::data
