// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <set>

#include "base/str.hpp"
#include "data/tasks_impl.hpp"

namespace kvatlas::data {
namespace {

std::string five_capitals(Random& random) {
  std::string name;
  for (int i = 0; i < 5; ++i) name += static_cast<char>('A' + random.below(26));
  return name;
}

}  // namespace

Prompt make_variable_tracking(const TaskRequest& request, const Options& options,
                              const CountTokens& count) {
  Random random(request.seed, "variables"), depths(request.seed, "depths");
  std::set<std::string> taken;
  std::vector<Needle> needles;
  std::string asked;  // the first chain's value
  std::vector<std::string> answers;
  for (std::int64_t chain = 0; chain < options.number("chains"); ++chain) {
    std::string value = draw_new(taken, [&] { return random_digits(random, 5); });
    if (chain == 0) asked = value;
    std::vector<double> places(static_cast<std::size_t>(options.number("hops") + 1));
    for (auto& place : places) place = depths.share();
    std::sort(places.begin(), places.end());
    for (const double place : places) {
      const std::string name = draw_new(taken, [&] { return five_capitals(random); });
      needles.push_back({place, "VAR " + name + " = " + value + "."});
      value = "VAR " + name;
      if (chain == 0) answers.push_back(name);
    }
  }
  const auto haystack = Haystack::named(options.word("haystack"), request.seed);
  return fit_length(request.length, 1, count, [&](std::int64_t pieces) {
    Prompt prompt;
    prompt.context =
        "Assignments to variables are hidden in the long text below: of numbers, and of other "
        "variables. Keep track of them.\n\n" +
        hide(haystack.first(pieces), needles);
    prompt.input = str("Which variables have the value ", asked,
                       " in the text above, directly or through other variables? The ",
                       answers.size(), " variables that have the value ", asked, " are: VAR");
    prompt.answers = answers;
    return prompt;
  });
}

}  // namespace kvatlas::data
