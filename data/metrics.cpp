// SPDX-License-Identifier: Apache-2.0
#include "data/metrics.hpp"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <unordered_map>
#include <vector>

#include "data/characters.hpp"

namespace kvatlas::data {
namespace {

/// Without ASCII's punctuation and the articles, which become blanks.
std::u32string without_articles(const std::u32string& text) {
  std::u32string out;
  for (std::size_t at = 0; at < text.size();) {
    const bool in_word = is_word_character(text[at]);
    std::size_t end = at;
    while (end < text.size() && is_word_character(text[end]) == in_word) ++end;
    const auto run = std::u32string_view(text).substr(at, end - at);
    out += run == U"a" || run == U"an" || run == U"the" ? std::u32string_view(U" ") : run;
    at = end;
  }
  return out;
}

/// What f1 compares, in order.
std::vector<std::u32string> normal_units(std::string_view given, Unit unit) {
  std::u32string text = in_small_letters(characters(given));
  std::vector<std::u32string> units;
  if (unit == Unit::character) {
    for (const char32_t c : text)
      if (!is_punctuation(c) && !is_blank(c)) units.emplace_back(1, c);
    return units;
  }
  text.erase(std::remove_if(text.begin(), text.end(), is_ascii_punctuation), text.end());
  text = without_articles(text);
  for (const auto word : split_at_blanks(text)) units.emplace_back(word);
  return units;
}

/// The runs of digits.
std::vector<std::u32string> numbers_in(std::string_view given) {
  const std::u32string text = characters(given);
  std::vector<std::u32string> numbers;
  for (auto at = text.begin(); at != text.end();) {
    const auto begin = std::find_if(at, text.end(), is_digit);
    at = std::find_if_not(begin, text.end(), is_digit);
    if (begin != at) numbers.emplace_back(begin, at);
  }
  return numbers;
}

std::string_view without_first_newlines(std::string_view text) {
  return text.substr(std::min(text.find_first_not_of('\n'), text.size()));
}

}  // namespace

bool is_found(std::string_view generated, std::string_view answer) {
  return in_small_letters(characters(generated)).find(in_small_letters(characters(answer))) !=
         std::u32string::npos;
}

double f1(std::string_view generated, std::string_view answer, Unit unit) {
  const auto said = normal_units(generated, unit), right = normal_units(answer, unit);
  std::unordered_map<std::u32string_view, std::int64_t> left;
  for (const auto& word : right) ++left[word];
  std::int64_t common = 0;
  for (const auto& word : said) {
    const auto found = left.find(word);
    if (found == left.end() || found->second == 0) continue;
    --found->second;
    ++common;
  }
  // 2PR / (P + R), with P = common / said and R = common / right.
  return common == 0
             ? 0
             : 2.0 * static_cast<double>(common) / static_cast<double>(said.size() + right.size());
}

bool is_exact(std::string_view generated, std::string_view answer, Unit unit) {
  return normal_units(generated, unit) == normal_units(answer, unit);
}

double classification(std::string_view generated, std::string_view answer,
                      std::span<const std::string> classes) {
  std::vector<std::string_view> named;
  for (const auto& name : classes)
    if (generated.find(name) != generated.npos) named.emplace_back(name);
  // LongBench takes names out of the list while it goes through it, and so does not look at the one
  // that follows a name taken out. Its figures are of this rule, and so are ours.
  std::int64_t counted = 0;
  bool right = false;
  for (std::size_t i = 0; i < named.size(); ++i) {
    if (named[i] != answer && answer.find(named[i]) != answer.npos && ++i == named.size()) break;
    ++counted;
    right = right || named[i] == answer;
  }
  return right ? 1 / static_cast<double>(counted) : 0;
}

double right_numbers(std::string_view generated, std::string_view answer) {
  const auto said = numbers_in(generated), right = numbers_in(answer);
  if (said.empty() || right.empty()) return 0;
  return static_cast<double>(std::count(said.begin(), said.end(), right.front())) /
         static_cast<double>(said.size());
}

double right_choice(std::string_view generated, std::string_view answer) {
  constexpr std::string_view kSaid = "The correct answer is ";
  std::string text(generated);
  std::erase(text, '*');  // bold letters
  const auto chosen = [&](bool in_brackets) -> std::string {
    for (auto at = text.find(kSaid); at != text.npos; at = text.find(kSaid, at + 1)) {
      const std::string_view said = std::string_view(text).substr(at + kSaid.size());
      const std::size_t place = in_brackets ? 1 : 0;
      if (in_brackets && !(said.size() > 2 && said[0] == '(' && said[2] == ')')) continue;
      if (said.size() > place && said[place] >= 'A' && said[place] <= 'D')
        return std::string(1, said[place]);
    }
    return {};
  };
  std::string letter = chosen(true);
  if (letter.empty()) letter = chosen(false);
  return !letter.empty() && letter == answer ? 1 : 0;
}

std::string_view first_line(std::string_view generated) {
  const auto text = without_first_newlines(generated);
  return text.substr(0, text.find('\n'));
}

std::string_view first_code_line(std::string_view generated) {
  const auto text = without_first_newlines(generated);
  for (std::size_t at = 0; at <= text.size();) {
    const auto line = text.substr(at, text.find('\n', at) - at);
    if (line.find_first_of("`#") == line.npos && line.find("//") == line.npos) return line;
    at += line.size() + 1;
  }
  return {};
}

}  // namespace kvatlas::data
