// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>

namespace kvatlas {

/// An input before and after its first zero byte; all and nothing where there is none.
inline std::pair<std::string_view, std::string_view> two_parts(const std::uint8_t* data,
                                                               std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const auto end = input.find('\0');
  if (end == input.npos) return {input, {}};
  return {input.substr(0, end), input.substr(end + 1)};
}

}  // namespace kvatlas
