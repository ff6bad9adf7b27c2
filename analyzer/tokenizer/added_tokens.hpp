// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "analyzer/tokenizer/literal_set.hpp"

namespace kvatlas::model {

/// A token that is found in the text as it is written, before anything is cut.
struct AddedToken {
  std::int32_t id = -1;
  std::string text;
  bool special = false;      // a control token, which is left out of decoded text on request
  bool normalized = false;   // looked for after normalising, not before
  bool single_word = false;  // only where no word character touches it
  bool strip_left = false;   // takes the spaces before it along
  bool strip_right = false;
};

/// Finds added tokens in a text from left to right, and the longest of those that begin at a place.
class AddedTokens {
 public:
  AddedTokens() = default;
  explicit AddedTokens(std::vector<AddedToken> tokens);

  /// Calls text_part(begin, end) and token(id) for the parts of the text, in order.
  void cut(std::string_view text, bool parse_special,
           const std::function<void(std::size_t, std::size_t)>& text_part,
           const std::function<void(std::int32_t)>& token) const;

 private:
  std::vector<AddedToken> tokens_;
  LiteralSet texts_;
};

}  // namespace kvatlas::model
