// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace kvatlas {

/// The number of bytes that a text such as "24GiB", "1.5 GB", "512MiB" or "1000000" names. KiB,
/// MiB, GiB and TiB are powers of 1024, and so are K, M, G and T; KB, MB, GB and TB are powers of
/// 1000. Error(usage) for any other text, and for a small number without a unit, as "24".
std::int64_t parse_bytes(std::string_view text);

/// A number of bytes for people: 1536 is "1.5 KiB".
std::string bytes_str(std::int64_t bytes);

/// The same, rounded up: parse_bytes() of it is enough for them.
std::string enough_bytes_str(std::int64_t bytes);

}  // namespace kvatlas
