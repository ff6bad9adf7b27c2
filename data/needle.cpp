// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <set>

#include "data/tasks_impl.hpp"

namespace kvatlas::data {
namespace {

constexpr std::array<const char*, 32> kAdjectives = {
    "amber", "brave",  "calm",   "clever", "copper", "crisp",  "distant", "eager",
    "early", "frozen", "gentle", "golden", "hidden", "hollow", "humble",  "ivory",
    "jolly", "late",   "lively", "marble", "narrow", "nimble", "polite",  "purple",
    "quiet", "rapid",  "rustic", "silver", "simple", "sunny",  "velvet",  "windy"};
constexpr std::array<const char*, 32> kNouns = {
    "anchor", "basket", "beacon",  "bridge",  "candle", "canyon",  "castle", "compass",
    "desert", "falcon", "feather", "forest",  "garden", "glacier", "hammer", "harbor",
    "island", "kettle", "ladder",  "lantern", "meadow", "mirror",  "needle", "orchard",
    "pebble", "planet", "ribbon",  "saddle",  "temple", "thimble", "valley", "whistle"};

}  // namespace

Prompt make_needle(const TaskRequest& request, const Options& options, const CountTokens& count) {
  const std::int64_t queries = options.number("queries"), values = options.number("values");
  const std::int64_t keys = std::max(options.number("keys"), queries);

  // The keys that are asked for come first, and the first one's first number lies at the depth
  // asked for.
  Random random(request.seed, "needle"), depths(request.seed, "depths");
  std::set<std::string> taken;
  std::vector<std::string> asked, answers;
  std::vector<Needle> needles;
  for (std::int64_t k = 0; k < keys; ++k) {
    const std::string key = draw_new(taken, [&] {
      const std::string adjective = kAdjectives[random.below(kAdjectives.size())];
      return adjective + "-" + kNouns[random.below(kNouns.size())];
    });
    if (k < queries) asked.push_back(key);
    for (std::int64_t v = 0; v < values; ++v) {
      const std::string value = draw_new(taken, [&] { return random_digits(random, 7); });
      if (k < queries) answers.push_back(value);
      needles.push_back({needles.empty() ? request.depth : depths.share(),
                         "One of the special magic numbers for " + key + " is " + value + "."});
    }
  }

  const bool one = answers.size() == 1;
  const std::string what =
      (one ? "special magic number for " : "special magic numbers for ") + list_in_words(asked);
  const auto haystack = Haystack::named(options.word("haystack"), request.seed);
  return fit_length(request.length, 1, count, [&](std::int64_t pieces) {
    Prompt prompt;
    prompt.context =
        "Special magic numbers are hidden in the long text below. Remember them, for I will ask "
        "you for them.\n\n" +
        hide(haystack.first(pieces), needles);
    prompt.input = (one ? "What is the " : "What are all the ") + what + "? The " + what +
                   (one ? " is" : " are");
    prompt.answers = answers;
    return prompt;
  });
}

}  // namespace kvatlas::data
