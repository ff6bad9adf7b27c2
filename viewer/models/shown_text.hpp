// SPDX-License-Identifier: Apache-2.0
// A prompt as text, with a shade behind each token.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "viewer/models/rows_model.hpp"

namespace kvatlas::viewer {

struct ShownToken {
  std::string text;  // one line, as shown_text() makes it
  bool ends_line = false;
  double shade = 0;    // 0 to 1
  double value = 0;    // what the shade stands for
  bool apart = false;  // underlined: of two texts, only this one has it
};

struct ShownText {
  std::string title;
  std::string unit;  // what the values are, such as "of the attention"
  std::vector<ShownToken> tokens;
  std::size_t prompt_tokens = 0;  // those before what was generated
  bool faint_zeros = false;       // tokens with the value 0 are written faintly
  std::string least = {},
              most = {};  // what no shade and the strongest one stand for, for the legend
};

/// A token and its value in words, for who points at it.
std::string words_of(const ShownText& text, std::size_t token);
/// The tokens of every place where `wanted` stands in the text, as the first and one past the last;
/// small and capital letters of ASCII are the same.
std::vector<std::pair<std::size_t, std::size_t>> places_of(const ShownText& text,
                                                           const std::string& wanted);

/// A row a token, with the text and the value of each of the texts.
Table table_of(const std::vector<ShownText>& texts);

/// The prompt of the last rows, with the shown texts of its tokens. Shades are the attention that
/// the tokens take from the first line, on a logarithmic scale up to the greatest but for the first
/// token's.
ShownText attended_text(const RowsModel& model, const std::vector<std::string>& texts);

/// The prompt, shaded by what one of its tokens reads in a head: exact where the token is among the
/// last rows, else the means of blocks that the sample's map holds. Error(usage) if the sample has
/// neither.
ShownText read_text(const profile::Reader& profile, std::size_t position, std::int64_t layer,
                    std::int64_t head, std::int64_t query, const std::vector<std::string>& texts);

}  // namespace kvatlas::viewer
