// SPDX-License-Identifier: Apache-2.0
#include "data/haystack.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <utility>

#include "base/plain_text.hpp"
#include "base/random.hpp"
#include "data/texts.hpp"

namespace kvatlas::data {
namespace {

/// Of these a seed takes five, in its order.
constexpr std::array<std::string_view, 24> kNoise = {
    "The grass is green.",     "The sky is blue.",
    "The sun is yellow.",      "Here we go.",
    "There and back again.",   "The river is wide.",
    "The wind is cold.",       "The night is long.",
    "The road is dusty.",      "A bird sings.",
    "The leaves are falling.", "We walk on.",
    "The sea is calm.",        "Snow lies on the hills.",
    "The moon is bright.",     "The bread is fresh.",
    "Rain comes and goes.",    "The house is quiet.",
    "The stones are grey.",    "A dog barks.",
    "The train is late.",      "Morning comes again.",
    "The window is open.",     "The fire is warm."};
constexpr std::string_view kSpaces = " \n";

std::vector<std::size_t> word_ends(std::string_view text) {
  std::vector<std::size_t> ends;
  for (std::size_t at = text.find_first_not_of(kSpaces); at != text.npos;) {
    const std::size_t end = std::min(text.find_first_of(kSpaces, at), text.size());
    ends.push_back(end);
    at = text.find_first_not_of(kSpaces, end);
  }
  return ends;
}

/// The words before which `starts(text, the first byte of the word)` holds, the first word among
/// them.
template <class Starts>
std::vector<std::size_t> starting_words(std::string_view text, const std::vector<std::size_t>& ends,
                                        Starts starts) {
  std::vector<std::size_t> words{0};
  for (std::size_t word = 1; word < ends.size(); ++word)
    if (starts(text.substr(ends[word - 1]))) words.push_back(word);
  return words;
}

/// Is the full stop at `dot` that of a title, as in "Mrs. Jennings"?
bool is_title(std::string_view text, std::size_t dot) {
  static constexpr std::array<std::string_view, 6> kTitles = {"Mr", "Mrs", "Dr",
                                                              "St", "Hon", "Esq"};
  std::size_t start = dot;
  while (start > 0 && std::isalpha(static_cast<unsigned char>(text[start - 1]))) --start;
  const auto word = text.substr(start, dot - start);
  return word.size() == 1 || std::find(kTitles.begin(), kTitles.end(), word) != kTitles.end();
}

}  // namespace

Haystack Haystack::repeat(std::uint64_t seed) {
  std::vector<std::string_view> sentences(kNoise.begin(), kNoise.end());
  Random(seed, "repeat").shuffle(sentences);
  sentences.resize(5);
  const auto text = std::make_shared<const std::string>(join(sentences, " ") + "\n");
  Haystack haystack(*text);
  haystack.made_ = text;
  haystack.ends_ = sentence_ends(haystack.text_.substr(0, text->size() - 1));
  return haystack;
}

Haystack Haystack::prose(std::uint64_t seed) {
  static const auto kEnds = word_ends(prose_text());
  static const auto kStarts = starting_words(
      prose_text(), kEnds, [](std::string_view gap) { return gap.substr(0, 2) == "\n\n"; });
  Haystack haystack(prose_text());
  haystack.ends_ = kEnds;
  haystack.start_ = kStarts[Random(seed, "prose").below(kStarts.size())];
  return haystack;
}

Haystack Haystack::code(std::uint64_t seed) {
  static const auto kEnds = word_ends(code_text());
  static const auto kStarts = starting_words(code_text(), kEnds, [](std::string_view gap) {
    return gap.substr(0, 2) == "\n\n" && gap.substr(2, 1).find_first_of(" \n}") == gap.npos;
  });
  Haystack haystack(code_text());
  haystack.ends_ = kEnds;
  haystack.start_ = kStarts[Random(seed, "code").below(kStarts.size())];
  return haystack;
}

Haystack Haystack::named(std::string_view name, std::uint64_t seed) {
  return name == "repeat" ? repeat(seed) : prose(seed);
}

std::string Haystack::first(std::int64_t pieces) const {
  std::string out;
  std::size_t piece = start_;
  while (pieces > 0) {
    const auto taken = std::min(static_cast<std::size_t>(pieces), ends_.size() - piece);
    const std::size_t from = piece == 0 ? 0 : ends_[piece - 1];
    pieces -= static_cast<std::int64_t>(taken);
    piece = (piece + taken) % ends_.size();
    // With the last piece goes what follows it in the text, if more pieces come.
    const std::size_t to =
        pieces > 0 ? text_.size() : ends_[piece == 0 ? ends_.size() - 1 : piece - 1];
    out += text_.substr(from, to - from);
  }
  return out.erase(0, out.find_first_not_of(kSpaces));
}

std::vector<std::size_t> sentence_ends(std::string_view text) {
  std::vector<std::size_t> ends;
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (std::string_view(".!?").find(text[at]) == text.npos) continue;
    std::size_t end = at + 1;
    while (end < text.size() && std::string_view("\"')").find(text[end]) != text.npos) ++end;
    const std::size_t next = text.find_first_not_of(kSpaces, end);
    if (next == end || next == text.npos) continue;
    const bool upper = std::isupper(static_cast<unsigned char>(text[next])) || text[next] == '"';
    if (upper && !(text[at] == '.' && is_title(text, at))) ends.push_back(end);
  }
  if (!text.empty()) ends.push_back(text.size());
  return ends;
}

std::string hide(std::string haystack, std::vector<Needle> needles) {
  if (!haystack.empty() && std::string_view(".!?\"").find(haystack.back()) == std::string::npos)
    haystack += " ...";
  auto ends = sentence_ends(haystack);
  ends.insert(ends.begin(), 0);
  const auto place_of = [&](double depth) {
    const double wanted = depth * static_cast<double>(haystack.size());
    return *std::min_element(ends.begin(), ends.end(), [&](std::size_t a, std::size_t b) {
      return std::abs(static_cast<double>(a) - wanted) < std::abs(static_cast<double>(b) - wanted);
    });
  };
  std::vector<std::pair<std::size_t, std::string>> placed;
  for (auto& needle : needles) placed.emplace_back(place_of(needle.depth), std::move(needle.text));
  std::stable_sort(placed.begin(), placed.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::string out;
  std::size_t done = 0;
  for (const auto& [place, text] : placed) {
    out.append(haystack, done, place - done);
    if (!out.empty() && out.back() != ' ') out += ' ';
    out += text;
    if (place == 0) out += ' ';
    done = place;
  }
  return out.append(haystack, done, haystack.npos);
}

}  // namespace kvatlas::data
