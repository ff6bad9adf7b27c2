// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cctype>
#include <set>

#include "base/str.hpp"
#include "data/tasks_impl.hpp"
#include "data/texts.hpp"

namespace kvatlas::data {
namespace {

/// The bundled prose's words of 4 to 9 small letters, in alphabetical order.
std::vector<std::string> words_of_the_prose() {
  std::set<std::string> words;
  std::string word;
  for (const char c : prose_text()) {
    if (std::isalpha(static_cast<unsigned char>(c))) {
      word += c;
      continue;
    }
    const bool small = std::all_of(word.begin(), word.end(), [](char l) { return l >= 'a'; });
    if (small && word.size() >= 4 && word.size() <= 9) words.insert(word);
    word.clear();
  }
  return {words.begin(), words.end()};
}

/// How often a word stands in a list of `entries`: RULER's 30 and 3 times, or 6 times and once
/// where that would be too long; more often where the words would not suffice.
struct Times {
  std::int64_t common, uncommon;

  Times(std::int64_t entries, std::int64_t length, std::int64_t words) {
    const bool is_short = length < 4096;
    uncommon = std::max<std::int64_t>(is_short ? 1 : 3, (entries + words - 1) / words);
    common = (is_short ? 6 : 10) * uncommon;
  }
};

}  // namespace

Prompt make_common_words(const TaskRequest& request, const Options& options,
                         const CountTokens& count) {
  static const auto kWords = words_of_the_prose();
  const std::int64_t n_common = options.number("words");
  auto words = kWords;
  Random(request.seed, "words").shuffle(words);
  const std::vector<std::string> common(words.begin(), words.begin() + n_common);
  words.erase(words.begin(), words.begin() + n_common);
  const auto n_uncommon = static_cast<std::int64_t>(words.size());

  const std::int64_t least = n_common * Times(0, request.length, n_uncommon).common + 1;
  return fit_length(request.length, least, count, [&](std::int64_t pieces) {
    const Times times(pieces, request.length, n_uncommon);
    std::vector<const std::string*> entries;
    for (const auto& word : common) entries.insert(entries.end(), times.common, &word);
    for (std::int64_t i = 0; static_cast<std::int64_t>(entries.size()) < pieces; ++i)
      entries.push_back(&words[i / times.uncommon]);
    Random(request.seed, "order").shuffle(entries);
    std::string list;
    for (std::size_t i = 0; i < entries.size(); ++i)
      list += str(i > 0 ? " " : "", i + 1, ". ", *entries[i]);
    Prompt prompt;
    prompt.context =
        "Below is a numbered list of words. Some of them stand in it often. Remember those that "
        "stand in it most often.\n\n" +
        list;
    prompt.input =
        str("Which ", n_common, " words stand in the list above most often? The most common ",
            n_common, " words in the list are:");
    prompt.answers = common;
    return prompt;
  });
}

}  // namespace kvatlas::data
