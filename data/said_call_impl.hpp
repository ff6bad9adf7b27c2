// SPDX-License-Identifier: Apache-2.0
// A call of a function that a model wrote, and the form of Python in which some models write them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

namespace kvatlas::data {

struct SaidCall {
  std::string name;
  nlohmann::json arguments;  // null if they cannot be read
  bool from_texts = false;   // values were written without saying what is a text
};

/// The calls of a text that is nothing else, as Llama 4, LFM2 and Gemma write them:
/// [find(city="Oslo", days=3), send()], between marks or in a block of code, and one without
/// brackets. Of a call that breaks off, or whose arguments have no names, the name is known. None
/// for any other text.
std::vector<SaidCall> python_calls(std::string_view text);

}  // namespace kvatlas::data
