// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace kvatlas {

/// "24GiB", "1.5 GB", "512MiB", "1000000" -> bytes. KiB, MiB, GiB, TiB are powers of 1024; KB, MB,
/// GB, TB of 1000; K, M, G, T mean the former. Anything else is an Error(usage).
std::int64_t parse_bytes(std::string_view text);

/// 1536 -> "1.5 KiB".
std::string bytes_str(std::int64_t bytes);

}  // namespace kvatlas
