// SPDX-License-Identifier: Apache-2.0
#include "data/tasks_impl.hpp"

namespace kvatlas::data {

Prompt make_passkey(const TaskRequest& request, const Options& options, const CountTokens& count) {
  Random random(request.seed, "passkey");
  const std::string key = random_digits(random, options.number("digits"));
  const auto haystack = Haystack::named(options.word("haystack"), request.seed);
  return fit_length(request.length, 1, count, [&](std::int64_t pieces) {
    Prompt prompt;
    prompt.context =
        "A pass key is hidden in the long text below. Find it and remember it, for I will ask you "
        "for it.\n\n" +
        hide(haystack.first(pieces), {{request.depth, "The pass key is " + key + ". Remember it. " +
                                                          key + " is the pass key."}});
    prompt.input = "What is the pass key? The pass key is";
    prompt.answers = {key};
    return prompt;
  });
}

}  // namespace kvatlas::data
