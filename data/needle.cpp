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
  const std::int64_t turns = options.number("turns");
  const std::int64_t keys = std::max(options.number("keys"), queries * turns);

  const std::string &keys_are = options.word("keys_are"), &values_are = options.word("values_are");
  const std::int64_t words =
      (keys_are == "words" ? keys : 0) + (values_are == "words" ? keys * values : 0);
  if (words > kMostWords)
    fail(ErrorCode::usage, "needles of ", words, " different words: expected at most ", kMostWords);

  // The keys that are asked for come first, and the first one's first value lies at the depth
  // asked for.
  Random random(request.seed, "needle"), depths(request.seed, "depths");
  std::set<std::string> taken;
  struct Asked {
    std::vector<std::string> keys, values;
  };
  std::vector<Asked> asked(static_cast<std::size_t>(turns));
  std::vector<Needle> needles;
  for (std::int64_t k = 0; k < keys; ++k) {
    Asked* of_turn = k < queries * turns ? &asked[static_cast<std::size_t>(k / queries)] : nullptr;
    const std::string key = draw_new(taken, [&] { return draw(keys_are, random); });
    if (of_turn) of_turn->keys.push_back(key);
    for (std::int64_t v = 0; v < values; ++v) {
      const std::string value = draw_new(taken, [&] { return draw(values_are, random); });
      if (of_turn) of_turn->values.push_back(value);
      needles.push_back(
          {needles.empty() ? request.depth : depths.share(),
           "One of the special magic " + values_are + " for " + key + " is " + value + "."});
    }
  }

  const bool one = queries * values == 1;
  const std::string kind = one ? values_are.substr(0, values_are.size() - 1) : values_are;
  std::vector<Prompt::Turn> all;
  for (const auto& of_turn : asked) {
    const std::string what = "special magic " + kind + " for " + list_in_words(of_turn.keys);
    all.push_back({(one ? "What is the " : "What are all the ") + what + "? The " + what +
                       (one ? " is" : " are"),
                   list_in_words(of_turn.values) + "."});
  }
  // All turns are asked of one text, into which the longest question fits.
  const auto longest = std::max_element(all.begin(), all.end(), [](const auto& a, const auto& b) {
    return a.input.size() < b.input.size();
  });
  const auto haystack = Haystack::named(options.word("haystack"), request.seed);
  Prompt prompt = fit_length(request.length, 1, count, [&](std::int64_t pieces) {
    Prompt fitted;
    fitted.context = "Special magic " + values_are +
                     " are hidden in the long text below. Remember them, for I will ask "
                     "you for them.\n\n" +
                     hide(haystack.first(pieces), needles);
    fitted.input = longest->input;
    return fitted;
  });
  const auto turn = static_cast<std::size_t>(request.turn - 1);
  prompt.input = all[turn].input;
  prompt.answers = asked[turn].values;
  prompt.earlier.assign(all.begin(), all.begin() + request.turn - 1);
  return prompt;
}

}  // namespace kvatlas::data
