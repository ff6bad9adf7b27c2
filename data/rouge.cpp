// SPDX-License-Identifier: Apache-2.0
// ROUGE-L by summary, as the Python package `rouge` 1.0 computes it.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "data/characters.hpp"
#include "data/metrics.hpp"

namespace kvatlas::data {
namespace {

constexpr std::size_t kMostWordsOfText = 4096;  // 17 million steps, 2 MB

using Sentence = std::vector<std::uint32_t>;  // of words, each a number

/// Gives each distinct word a number.
class Words {
 public:
  std::uint32_t number(std::u32string_view word) {
    return numbers_.try_emplace(std::u32string(word), static_cast<std::uint32_t>(numbers_.size()))
        .first->second;
  }
  std::size_t size() const { return numbers_.size(); }

 private:
  std::unordered_map<std::u32string, std::uint32_t> numbers_;
};

/// The sentences of a text, which end at full stops. One of blanks alone has one word, the empty
/// one.
std::vector<Sentence> sentences_of(std::string_view given, Unit unit, Words& words) {
  const std::u32string text = characters(given);
  std::vector<Sentence> sentences;
  std::size_t room = kMostWordsOfText;
  for (std::size_t at = 0; at < text.size() && room > 0;) {
    const auto piece = std::u32string_view(text).substr(at, text.find(U'.', at) - at);
    at += piece.size() + 1;
    if (piece.empty()) continue;
    Sentence& sentence = sentences.emplace_back();
    const auto add = [&](std::u32string_view word) {
      if (sentence.size() < room) sentence.push_back(words.number(word));
    };
    for (const auto word : split_at_blanks(piece)) {
      if (unit == Unit::word) add(word);
      if (unit == Unit::character)
        for (std::size_t i = 0; i < word.size(); ++i) add(word.substr(i, 1));
    }
    if (sentence.empty()) add({});
    room -= sentence.size();
  }
  return sentences;
}

/// Marks the words of longest common subsequences; of several, of the one that the package finds.
class CommonWords {
 public:
  explicit CommonWords(std::size_t words) : is_common_(words) {}

  void add(const Sentence& answer, const Sentence& said) {
    const std::size_t columns = said.size() + 1;
    above_.assign(columns, 0);
    row_.assign(columns, 0);
    up_.assign((answer.size() + 1) * columns, false);
    for (std::size_t i = 1; i <= answer.size(); ++i) {
      for (std::size_t j = 1; j < columns; ++j) {
        up_[i * columns + j] = above_[j] > row_[j - 1];
        row_[j] =
            answer[i - 1] == said[j - 1] ? above_[j - 1] + 1 : std::max(above_[j], row_[j - 1]);
      }
      std::swap(above_, row_);
    }
    for (std::size_t i = answer.size(), j = said.size(); i > 0 && j > 0;) {
      if (answer[i - 1] == said[j - 1]) {
        is_common_[answer[i - 1]] = true;
        --i;
        --j;
      } else {
        --(up_[i * columns + j] ? i : j);
      }
    }
  }

  std::int64_t count() const { return std::count(is_common_.begin(), is_common_.end(), true); }

 private:
  std::vector<bool> is_common_;
  std::vector<std::uint32_t> above_, row_;  // lengths, by the words of `said`
  std::vector<bool> up_;  // dropping the answer's last word loses less than dropping the other's
};

std::int64_t distinct(const std::vector<Sentence>& sentences, std::size_t words) {
  std::vector<bool> seen(words);
  for (const auto& sentence : sentences)
    for (const auto word : sentence) seen[word] = true;
  return std::count(seen.begin(), seen.end(), true);
}

}  // namespace

double rouge_l(std::string_view generated, std::string_view answer, Unit unit) {
  Words words;
  const auto said = sentences_of(generated, unit, words);
  const auto right = sentences_of(answer, unit, words);
  if (said.empty() || right.empty()) return 0;
  CommonWords common(words.size());
  for (const auto& one : right)
    for (const auto& other : said) common.add(one, other);
  const auto n_common = static_cast<double>(common.count());
  const double recall = n_common / static_cast<double>(distinct(right, words.size()));
  const double precision = n_common / static_cast<double>(distinct(said, words.size()));
  return 2 * (precision * recall / (precision + recall + 1e-8));
}

}  // namespace kvatlas::data
