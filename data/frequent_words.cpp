// SPDX-License-Identifier: Apache-2.0
#include <set>

#include "base/plain_text.hpp"
#include "data/tasks_impl.hpp"

namespace kvatlas::data {
namespace {

std::string six_letters(Random& random) {
  std::string word;
  for (int i = 0; i < 6; ++i) word += static_cast<char>('a' + random.below(26));
  return word;
}

/// How often the words of a text of `entries` stand in it, the most frequent first: in proportion
/// to 1 / k^2 (Zipf's law with the exponent 2, RULER's), and what is left once each.
std::vector<std::int64_t> frequencies(std::int64_t entries) {
  std::vector<std::int64_t> times;
  std::int64_t left = entries;
  // The sum of 1 / k^2 is 1.6449...
  for (std::int64_t k = 1; left > 0; ++k) {
    const std::int64_t share = entries * 10'000 / (16'450 * k * k);
    times.push_back(std::max<std::int64_t>(share, 1));
    left -= times.back();
  }
  return times;
}

}  // namespace

Prompt make_frequent_words(const TaskRequest& request, const Options&, const CountTokens& count) {
  constexpr std::int64_t kLeast = 60;  // so that the third word is more frequent than the fourth
  return fit_length(request.length, kLeast, count, [&](std::int64_t pieces) {
    Random random(request.seed, "made-up words");
    std::set<std::string> taken;
    std::vector<std::string> entries, answers;
    for (const std::int64_t times : frequencies(pieces)) {
      const auto word = draw_new(taken, [&] { return six_letters(random); });
      entries.insert(entries.end(), static_cast<std::size_t>(times), word);
      if (answers.size() < 3) answers.push_back(word);
    }
    Random(request.seed, "order").shuffle(entries);
    const std::string text = join(entries, " ");
    Prompt prompt;
    prompt.context =
        "Below is a text in made-up words. Keep track of how often each of them stands in it.\n\n" +
        text;
    prompt.input =
        "Which three words stand in the text above most often? The three most frequent words in "
        "the text are:";
    prompt.answers = answers;
    return prompt;
  });
}

}  // namespace kvatlas::data
