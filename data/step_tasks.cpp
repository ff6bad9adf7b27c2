// SPDX-License-Identifier: Apache-2.0
// Tasks whose answers are long: what holds after each of many steps, worked out one by one.
#include <algorithm>
#include <array>

#include "base/plain_text.hpp"
#include "base/str.hpp"
#include "data/tasks_impl.hpp"

namespace kvatlas::data {
namespace {

/// Steps in words, and what holds after each.
struct Steps {
  std::string begin;  // what holds before the first
  std::vector<std::string> words, values;
};

/// The steps hidden in a long text, and the question that asks for their values.
Prompt steps_prompt(const TaskRequest& request, const Options& options, const CountTokens& count,
                    const Steps& steps, const std::string& what) {
  std::string list = steps.begin;
  for (std::size_t i = 0; i < steps.words.size(); ++i)
    list += str(" Step ", i + 1, ": ", steps.words[i], ".");
  const auto haystack = Haystack::named(options.word("haystack"), request.seed);
  return fit_length(request.length, 1, count, [&](std::int64_t pieces) {
    Prompt prompt;
    prompt.context = str("A list of ", steps.words.size(),
                         " steps is hidden in the long text below. Remember all of them, for I "
                         "will ask you to carry them out.\n\n") +
                     hide(haystack.first(pieces), {{request.depth, list}});
    prompt.input =
        str("Carry out the ", steps.words.size(),
            " steps of the text above in their order. Write a line for each step: its number, and ",
            what, " after it.\n\nStep 1:");
    prompt.answers = steps.values;
    prompt.metric = "steps";
    return prompt;
  });
}

constexpr std::array<std::string_view, 24> kThings = {
    "apple", "bell",  "book",  "brush", "candle", "clock",  "cup",   "drum",
    "fan",   "glove", "hat",   "kite",  "lamp",   "map",    "nail",  "pen",
    "ring",  "rope",  "shell", "spoon", "stone",  "ticket", "torch", "wheel"};
constexpr std::array<std::string_view, 10> kPeople = {"Anna",  "Ben",   "Clara", "David", "Emma",
                                                      "Frank", "Greta", "Hugo",  "Iris",  "Jack"};

template <std::size_t N>
std::vector<std::string> drawn(const std::array<std::string_view, N>& all, std::int64_t count,
                               Random& random) {
  std::vector<std::string> out(all.begin(), all.end());
  random.shuffle(out);
  out.resize(static_cast<std::size_t>(count));
  return out;
}

}  // namespace

Prompt make_running_total(const TaskRequest& request, const Options& options,
                          const CountTokens& count) {
  Random random(request.seed, "running total");
  std::int64_t most = 1;
  for (std::int64_t i = 0; i < options.number("digits"); ++i) most *= 10;
  const auto number = [&] {
    return 1 + static_cast<std::int64_t>(random.below(static_cast<std::size_t>(most - 1)));
  };
  std::int64_t total = number();
  Steps steps{str("The total is ", total, " at first."), {}, {}};
  for (std::int64_t i = 0; i < options.number("steps"); ++i) {
    const std::int64_t by = number();
    const bool less = random.below(2) == 0 && by <= total;
    steps.words.push_back(less ? str("take away ", by) : str("add ", by));
    total += less ? -by : by;
    steps.values.push_back(std::to_string(total));
  }
  return steps_prompt(request, options, count, steps, "the total");
}

Prompt make_list_edit(const TaskRequest& request, const Options& options,
                      const CountTokens& count) {
  Random random(request.seed, "list edit");
  const std::int64_t items = options.number("items");
  std::vector<std::string> others = drawn(kThings, std::ssize(kThings), random);
  std::vector<std::string> list(others.begin(), others.begin() + items);
  others.erase(others.begin(), others.begin() + items);
  Steps steps{"The list is " + join(list, ", ") + " at first.", {}, {}};
  for (std::int64_t i = 0; i < options.number("steps"); ++i) {
    const std::size_t at = random.below(list.size()), to = random.below(list.size());
    switch (random.below(4)) {
      case 0:  // another thing takes the place
        steps.words.push_back(str("put ", others.front(), " in the place of ", list[at]));
        std::swap(others.front(), list[at]);
        random.shuffle(others);
        break;
      case 1:
        steps.words.push_back(str("move ", list[at], " to the end"));
        std::rotate(list.begin() + static_cast<std::ptrdiff_t>(at),
                    list.begin() + static_cast<std::ptrdiff_t>(at) + 1, list.end());
        break;
      case 2:
        steps.words.push_back(str("move ", list[at], " to the front"));
        std::rotate(list.begin(), list.begin() + static_cast<std::ptrdiff_t>(at),
                    list.begin() + static_cast<std::ptrdiff_t>(at) + 1);
        break;
      default:
        if (at == to) {
          steps.words.emplace_back("turn the list around");
          std::reverse(list.begin(), list.end());
        } else {
          steps.words.push_back(str("let ", list[at], " and ", list[to], " change places"));
          std::swap(list[at], list[to]);
        }
    }
    steps.values.push_back(join(list, ", "));
  }
  return steps_prompt(request, options, count, steps, "the whole list");
}

Prompt make_state_tracking(const TaskRequest& request, const Options& options,
                           const CountTokens& count) {
  Random random(request.seed, "state tracking");
  const std::int64_t n = options.number("people");
  const std::vector<std::string> people = drawn(kPeople, n, random);
  std::vector<std::string> held = drawn(kThings, n, random);  // by each of them
  const std::string asked = held[random.below(held.size())];
  Steps steps;
  for (std::size_t i = 0; i < people.size(); ++i)
    steps.begin += str(i > 0 ? " " : "", people[i], " holds the ", held[i], ".");
  for (std::int64_t i = 0; i < options.number("steps"); ++i) {
    const std::size_t one = random.below(people.size());
    const std::size_t other = (one + 1 + random.below(people.size() - 1)) % people.size();
    steps.words.push_back(str(people[one], " and ", people[other], " swap what they hold"));
    std::swap(held[one], held[other]);
    steps.values.push_back(people[static_cast<std::size_t>(
        std::find(held.begin(), held.end(), asked) - held.begin())]);
  }
  return steps_prompt(request, options, count, steps, str("the name of who holds the ", asked));
}

}  // namespace kvatlas::data
