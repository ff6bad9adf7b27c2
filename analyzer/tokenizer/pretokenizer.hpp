// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "analyzer/tokenizer/regex.hpp"

namespace kvatlas::model {

/// The patterns that cut text for byte-level BPE.
namespace patterns {
extern const char* const kGpt2;
extern const char* const kLlama3;
extern const char* const kQwen2;
extern const char* const kDigit;
}  // namespace patterns

/// A text cut into pieces that are encoded one by one.
struct Pieces {
  struct Range {
    std::size_t begin, end;
    bool at_start;  // it begins where the whole prompt begins
  };
  std::string text;
  std::vector<Range> ranges;

  std::string_view piece(const Range& range) const {
    return std::string_view(text).substr(range.begin, range.end - range.begin);
  }
};

/// What becomes of a separator that was found (the names of tokenizer.json).
enum class SplitBehavior { removed, isolated, merged_with_previous, merged_with_next, contiguous };

/// A chain of steps, each of which cuts the pieces further or rewrites their text.
class PreTokenizer {
 public:
  using Step = std::function<void(Pieces&)>;

  void add(Step step) { steps_.push_back(std::move(step)); }
  /// `text` is valid UTF-8. Pieces are never empty.
  Pieces cut(std::string text, bool at_start) const;

 private:
  std::vector<Step> steps_;
};

/// The steps that tokenizer.json knows.
namespace cutting {
using CharTest = bool (*)(char32_t);

PreTokenizer::Step split(Regex pattern, SplitBehavior behavior, bool invert = false);
PreTokenizer::Step split(CharTest separator, SplitBehavior behavior);
PreTokenizer::Step split(char32_t separator, SplitBehavior behavior);
/// Runs of word characters and runs of what is neither word nor space.
PreTokenizer::Step words_and_symbols();
PreTokenizer::Step prefix_space();
PreTokenizer::Step byte_level();

enum class PrependScheme { always, first, never };
PreTokenizer::Step metaspace(std::string replacement, PrependScheme scheme, bool split);

bool is_separating_punctuation(char32_t code);  // ASCII symbols and \p{P}
}  // namespace cutting

}  // namespace kvatlas::model
