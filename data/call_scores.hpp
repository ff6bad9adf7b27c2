// SPDX-License-Identifier: Apache-2.0
// How far a generated text makes the calls of functions that it is asked for (docs/tasks.md).
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/prompt_description.hpp"

namespace kvatlas::data {

inline constexpr std::size_t kMostCalls = 64;  // of one answer

/// The parts of a call, each 0 to 1; of several calls the means over them.
struct CallParts {
  double call = 0;       // it is one, whatever else is wrong
  double name = 0;       // of the right function
  double valid = 0;      // its arguments are JSON that fits that function's parameters
  double arguments = 0;  // the share of its arguments, and of those wanted, that are right
  /// What the call is worth: the mean of the parts.
  double score() const { return (call + name + valid + arguments) / 4; }
};

/// What the parts are called, in their order, for people and as names.
struct CallPart {
  const char *title, *name;
  double CallParts::*value;
};
inline constexpr std::array<CallPart, 4> kCallParts = {
    {{"is a call", "call", &CallParts::call},
     {"right function", "name", &CallParts::name},
     {"valid arguments", "valid", &CallParts::valid},
     {"arguments right", "arguments", &CallParts::arguments}}};

/// An answer is {"name", "arguments", "parameters"} as JSON, the last of which is the function's
/// schema and may be missing. Error(unreadable) for an answer that is something else.
CallParts call_parts(std::span<const std::string> answers, std::string_view generated);
/// The same of a prompt that asks for calls; none if it asks for something else.
std::optional<CallParts> prompt_call_parts(const PromptDescription& prompt,
                                           std::string_view generated);

}  // namespace kvatlas::data
