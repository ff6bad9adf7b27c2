// SPDX-License-Identifier: Apache-2.0
// How commands declare their options. An option goes into the group of the help that
// `command.option_defaults()` names.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

#include "base/str.hpp"

namespace kvatlas {

/// The check of an option that takes a real number from `low` to `high`, both included. CLI11's own
/// check lets NaN pass, because NaN is neither below `low` nor above `high`, and names the range as
/// "0.000000 to 100.000000".
inline CLI::Validator real_range(double low, double high) {
  const CLI::Range range(low, high);
  return CLI::Validator(
      [range, low, high](std::string& text) {
        if (std::isnan(std::strtod(text.c_str(), nullptr)))
          return std::string("Value nan is no number");
        if (range(text).empty()) return std::string();
        return str("Value ", text, " not in range ", low, " to ", high);
      },
      range.get_description());
}

/// The check of an option that takes a whole number from `low` to `high`, both included.
inline CLI::Validator whole_range(std::int64_t low, std::int64_t high) {
  return CLI::Range(low, high);
}

/// Adds an option whose value the help calls `type`, such as "FILE" or "TOKENS". A text that is
/// given must not be empty: it would be taken as not given, and is mostly a shell's variable that
/// nobody set.
template <class Value>
CLI::Option* add_option(CLI::App& command, std::string name, Value& value, std::string type,
                        std::string text = {}) {
  CLI::Option* option =
      command.add_option(std::move(name), value, std::move(text))->type_name(std::move(type));
  if constexpr (std::is_same_v<Value, std::string> ||
                std::is_same_v<Value, std::vector<std::string>>)
    option->check([](const std::string& given) {
      return given.empty() ? std::string("is empty: give it a value, or leave it out")
                           : std::string();
    });
  return option;
}

/// Adds an option that takes a number from `low` to `high`, and whose default the help shows.
template <class Number>
CLI::Option* add_number(CLI::App& command, std::string name, Number& value, std::string type,
                        std::string text, std::type_identity_t<Number> low,
                        std::type_identity_t<Number> high) {
  CLI::Option* option =
      add_option(command, std::move(name), value, std::move(type), std::move(text));
  option->capture_default_str();
  if constexpr (std::is_floating_point_v<Number>)
    return option->check(real_range(low, high));
  else
    return option->check(
        whole_range(static_cast<std::int64_t>(low), static_cast<std::int64_t>(high)));
}

}  // namespace kvatlas
