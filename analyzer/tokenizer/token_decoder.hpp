// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "analyzer/tokenizer/regex.hpp"

namespace kvatlas::model {

/// Turns tokens, as the vocabulary spells them, back into text: a chain of steps.
class TokenDecoder {
 public:
  struct Text {
    std::vector<std::string> tokens;
    bool at_start = true;  // the first token begins the text
    bool fused = false;    // the tokens have been joined into one
  };
  using Step = std::function<void(Text&)>;

  void add(Step step) { steps_.push_back(std::move(step)); }
  /// The bytes of the tokens; not UTF-8 where a token ends inside a character. Without steps the
  /// tokens are joined with spaces. at_start: no text comes before.
  std::string apply(std::vector<std::string> tokens, bool at_start) const;

 private:
  std::vector<Step> steps_;
};

/// The steps that tokenizer.json knows.
namespace decoding {
TokenDecoder::Step byte_level();
TokenDecoder::Step byte_fallback();  // "<0x0A>" is the byte 10
TokenDecoder::Step fuse();
TokenDecoder::Step replace(Regex pattern, std::string content);
/// Removes `content` up to `start` times from the front of each token and up to `stop` times from
/// its end. Of joined tokens it is removed from the front of the text.
TokenDecoder::Step strip(std::string content, std::size_t start, std::size_t stop);
/// The replacement becomes a space, save in the first token, where it goes if `drop_first`.
TokenDecoder::Step metaspace(const std::string& replacement, bool drop_first);
}  // namespace decoding

}  // namespace kvatlas::model
