// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace kvatlas::data {

/// The bundled texts (data/texts/README.md), plain ASCII.
std::string_view prose_text();
std::string_view code_text();

/// The table of LongBench's datasets: JSON.
std::string_view longbench_text();

}  // namespace kvatlas::data
