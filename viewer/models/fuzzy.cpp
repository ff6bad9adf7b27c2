// SPDX-License-Identifier: Apache-2.0
#include "viewer/models/fuzzy.hpp"

#include <algorithm>
#include <string>
#include <vector>

namespace kvatlas::viewer {

namespace {

constexpr int kLetter = 1, kRun = 4, kWordStart = 6, kTextStart = 4, kWholeText = 20;

bool is_word(char letter) {
  return (letter >= 'a' && letter <= 'z') || (letter >= '0' && letter <= '9') ||
         static_cast<unsigned char>(letter) >= 0x80;
}

}  // namespace

std::string lowered(std::string_view text) {
  std::string out(text);
  for (char& letter : out)
    if (letter >= 'A' && letter <= 'Z') letter = static_cast<char>(letter - 'A' + 'a');
  return out;
}

std::optional<int> fuzzy_score(std::string_view pattern, std::string_view text) {
  constexpr int kNone = -1000000;
  const std::string wanted = lowered(pattern), given = lowered(text);
  if (wanted.size() > given.size() || given.size() > 4096) return std::nullopt;
  // best[i] is the best score of the letters so far if the last of them is at given[i].
  std::vector<int> best(given.size(), 0), before;
  bool any = false;
  for (std::size_t letter = 0; letter < wanted.size(); ++letter) {
    before.swap(best);
    best.assign(given.size(), kNone);
    any = false;
    int reachable = letter == 0 ? 0 : kNone;  // the best of before[0 … i - 1]
    for (std::size_t i = 0; i < given.size(); ++i) {
      if (given[i] == wanted[letter] && (letter == 0 || reachable > kNone)) {
        int score = reachable;
        if (letter > 0 && before[i - 1] > kNone) score = std::max(score, before[i - 1] + kRun);
        if (i == 0) score += kTextStart;
        if (i == 0 || !is_word(given[i - 1])) score += kWordStart;
        best[i] = score + kLetter;
        any = true;
      }
      if (letter > 0) reachable = std::max(reachable, before[i]);
    }
    if (!any) return std::nullopt;
  }
  if (wanted.empty()) return 0;
  return *std::max_element(best.begin(), best.end()) + (wanted == given ? kWholeText : 0);
}

}  // namespace kvatlas::viewer
