// SPDX-License-Identifier: Apache-2.0
// What the kinds of task share: their options, and where each is made.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/random.hpp"
#include "data/fit_length.hpp"
#include "data/haystack.hpp"
#include "data/tasks.hpp"

namespace kvatlas::data {

/// The options in a task's name, and the standard values of those that it does not give.
class Options {
 public:
  Options(const TaskInfo& info, std::string_view given);  // ":keys=4,values=2", or nothing

  std::int64_t number(std::string_view name) const { return numbers_.at(std::string(name)); }
  const std::string& word(std::string_view name) const { return words_.at(std::string(name)); }

 private:
  void set(const TaskOption& option, std::string_view value);

  std::map<std::string, std::int64_t> numbers_;
  std::map<std::string, std::string> words_;
};

/// Fills context, input (or text) and answers; make_prompt does the rest.
using MakeTask = Prompt (*)(const TaskRequest&, const Options&, const CountTokens&);

Prompt make_needle(const TaskRequest&, const Options&, const CountTokens&);
Prompt make_passkey(const TaskRequest&, const Options&, const CountTokens&);
Prompt make_variable_tracking(const TaskRequest&, const Options&, const CountTokens&);
Prompt make_common_words(const TaskRequest&, const Options&, const CountTokens&);
Prompt make_frequent_words(const TaskRequest&, const Options&, const CountTokens&);
Prompt make_running_total(const TaskRequest&, const Options&, const CountTokens&);
Prompt make_list_edit(const TaskRequest&, const Options&, const CountTokens&);
Prompt make_state_tracking(const TaskRequest&, const Options&, const CountTokens&);
Prompt make_tools(const TaskRequest&, const Options&, const CountTokens&);
Prompt make_prose(const TaskRequest&, const Options&, const CountTokens&);
Prompt make_code(const TaskRequest&, const Options&, const CountTokens&);

/// A number of so many digits that does not begin with 0.
std::string random_digits(Random& random, std::int64_t digits);

/// Calls `draw` until it gives something that is not in `taken`, puts that there and returns it.
template <class Draw>
std::string draw_new(std::set<std::string>& taken, Draw draw) {
  for (;;) {
    std::string drawn = draw();
    if (taken.insert(drawn).second) return drawn;
  }
}

/// "a", "a and b", "a, b and c".
std::string list_in_words(const std::vector<std::string>& items);

}  // namespace kvatlas::data
