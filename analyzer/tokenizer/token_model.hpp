// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace kvatlas::model {

/// Encodes one piece of normalised, cut text. Immutable and thread-safe.
class TokenModel {
 public:
  virtual ~TokenModel() = default;
  /// Appends the ids of `piece` (valid UTF-8, not empty).
  virtual void encode(std::string_view piece, std::vector<std::int32_t>& ids) const = 0;
};

}  // namespace kvatlas::model
