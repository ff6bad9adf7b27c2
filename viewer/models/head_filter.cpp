// SPDX-License-Identifier: Apache-2.0
#include "viewer/models/head_filter.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <sstream>
#include <utility>

#include "base/error.hpp"
#include "base/str.hpp"
#include "viewer/models/fuzzy.hpp"

namespace kvatlas::viewer {

namespace {

template <class Number>
std::optional<Number> number_of(const std::string& text) {
  Number number{};
  const char* const end = text.data() + text.size();
  const auto read = std::from_chars(text.data(), end, number);
  if (text.empty() || read.ec != std::errc() || read.ptr != end) return std::nullopt;
  return number;
}

}  // namespace

HeadFilter::HeadFilter(const std::string& text) {
  std::string spaced = lowered(text);
  std::replace(spaced.begin(), spaced.end(), ',', ' ');
  std::istringstream words(spaced);
  bool negated = false;
  for (std::string word; words >> word;) {
    if (word == "not") {
      negated = !negated;
      continue;
    }
    terms_.push_back({std::exchange(negated, false), parse(word)});
  }
  if (negated) fail(ErrorCode::usage, "the filter ends with 'not': a word should follow");
}

HeadFilter::Holds HeadFilter::parse(const std::string& word) {
  if (word == "lazy") return [](const HeadFacts& facts) { return facts.lazy; };
  if (auto range = parse_range(word)) return range;
  if (auto comparison = parse_comparison(word)) return comparison;
  fail(ErrorCode::usage, "a filter has no word ", quoted(word),
       ": expected lazy, L10, L10-L20, H3, or sink, recency, entropy or budget as sink>0.5");
}

HeadFilter::Holds HeadFilter::parse_range(const std::string& word) const {
  const char letter = word.front();
  if (letter != 'l' && letter != 'h') return nullptr;
  const auto dash = word.find('-');
  std::string last_text = dash == word.npos ? word.substr(1) : word.substr(dash + 1);
  if (dash != word.npos && !last_text.empty() && last_text.front() == letter) last_text.erase(0, 1);
  const auto first = number_of<std::int64_t>(word.substr(1, dash == word.npos ? dash : dash - 1));
  const auto last = number_of<std::int64_t>(last_text);
  if (!first || !last) return nullptr;
  return [letter, range = std::pair(*first, *last)](const HeadFacts& facts) {
    const std::int64_t at = letter == 'l' ? facts.layer : facts.head;
    return std::optional(at >= range.first && at <= range.second);
  };
}

HeadFilter::Holds HeadFilter::parse_comparison(const std::string& word) {
  const auto sign = word.find_first_of("<>");
  if (sign == word.npos) return nullptr;
  const bool equal = sign + 1 < word.size() && word[sign + 1] == '=';
  const auto bound = number_of<double>(word.substr(sign + (equal ? 2 : 1)));
  if (!bound || !std::isfinite(*bound)) return nullptr;
  static const std::vector<std::pair<std::string, std::optional<double> HeadFacts::*>> kNumbers = {
      {"sink", &HeadFacts::sink},
      {"recency", &HeadFacts::recency},
      {"entropy", &HeadFacts::entropy},
      {"budget", &HeadFacts::budget}};
  for (const auto& [name, member] : kNumbers) {
    if (word.substr(0, sign) != name) continue;
    if (name != "budget") needs_measures_ = true;
    return [member = member, greater = word[sign] == '>', equal,
            bound = *bound](const HeadFacts& facts) -> std::optional<bool> {
      const auto& number = facts.*member;
      if (!number) return std::nullopt;
      if (equal && *number == bound) return true;
      return greater ? *number > bound : *number < bound;
    };
  }
  return nullptr;
}

bool HeadFilter::matches(const HeadFacts& facts) const {
  return std::all_of(terms_.begin(), terms_.end(), [&](const Term& term) {
    const auto holds = term.holds(facts);
    return holds && *holds != term.negated;
  });
}

}  // namespace kvatlas::viewer
