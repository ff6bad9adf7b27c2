// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <set>

#include "base/error.hpp"
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

// Half of the pairs that there are, so that one that is not taken is soon drawn.
constexpr auto kMostWords = static_cast<std::int64_t>(kAdjectives.size() * kNouns.size() / 2);

std::string two_words(Random& random) {
  const std::string adjective = kAdjectives[random.below(kAdjectives.size())];
  return adjective + "-" + kNouns[random.below(kNouns.size())];
}

/// A random identifier as of RFC 4122, version 4.
std::string uuid(Random& random) {
  std::string out = "xxxxxxxx-xxxx-4xxx-yxxx-xxxxxxxxxxxx";
  for (char& c : out) {
    if (c == 'x') c = "0123456789abcdef"[random.below(16)];
    if (c == 'y') c = "89ab"[random.below(4)];
  }
  return out;
}

std::string draw(std::string_view kind, Random& random) {
  return kind == "uuids"   ? uuid(random)
         : kind == "words" ? two_words(random)
                           : random_digits(random, 7);
}

}  // namespace

Prompt make_needle(const TaskRequest& request, const Options& options, const CountTokens& count) {
  const std::int64_t queries = options.number("queries"), values = options.number("values");
  const std::int64_t keys = std::max(options.number("keys"), queries);

  const std::string &keys_are = options.word("keys_are"), &values_are = options.word("values_are");
  const std::int64_t words =
      (keys_are == "words" ? keys : 0) + (values_are == "words" ? keys * values : 0);
  if (words > kMostWords)
    fail(ErrorCode::usage, "needles of ", words, " different words: expected at most ", kMostWords);

  // The keys that are asked for come first, and the first one's first value lies at the depth
  // asked for.
  Random random(request.seed, "needle"), depths(request.seed, "depths");
  std::set<std::string> taken;
  std::vector<std::string> asked, answers;
  std::vector<Needle> needles;
  for (std::int64_t k = 0; k < keys; ++k) {
    const std::string key = draw_new(taken, [&] { return draw(keys_are, random); });
    if (k < queries) asked.push_back(key);
    for (std::int64_t v = 0; v < values; ++v) {
      const std::string value = draw_new(taken, [&] { return draw(values_are, random); });
      if (k < queries) answers.push_back(value);
      needles.push_back(
          {needles.empty() ? request.depth : depths.share(),
           "One of the special magic " + values_are + " for " + key + " is " + value + "."});
    }
  }

  const bool one = answers.size() == 1;
  const std::string kind = one ? values_are.substr(0, values_are.size() - 1) : values_are;
  const std::string what = "special magic " + kind + " for " + list_in_words(asked);
  const auto haystack = Haystack::named(options.word("haystack"), request.seed);
  return fit_length(request.length, 1, count, [&](std::int64_t pieces) {
    Prompt prompt;
    prompt.context = "Special magic " + values_are +
                     " are hidden in the long text below. Remember them, for I will ask "
                     "you for them.\n\n" +
                     hide(haystack.first(pieces), needles);
    prompt.input = (one ? "What is the " : "What are all the ") + what + "? The " + what +
                   (one ? " is" : " are");
    prompt.answers = answers;
    return prompt;
  });
}

}  // namespace kvatlas::data
