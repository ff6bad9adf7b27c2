// SPDX-License-Identifier: Apache-2.0
// What templates call: functions, methods, filters and tests.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "analyzer/jinja/jinja_value_impl.hpp"

namespace kvatlas::model {

struct JinjaArguments {
  JinjaValues values;
  std::vector<std::pair<std::string_view, JinjaValue>> named;

  /// A value for each of the names, undefined where none is given. Refuses what fits no name.
  JinjaValues match(JinjaHeap& heap, std::string_view callee,
                    std::initializer_list<std::string_view> names) const;
};

/// Where the part begins from `at` on, in time that grows with the text's length alone; npos if
/// nowhere.
std::size_t find_bytes(JinjaHeap& heap, std::string_view text, std::string_view part,
                       std::size_t at);

/// Whether Python has a method of that name on such an object, which then hides an item of the
/// name.
bool is_method(JinjaKind kind, std::string_view name);
JinjaValue call_method(JinjaHeap& heap, const JinjaMethod& method, const JinjaArguments& arguments);
JinjaValue loop_attribute(JinjaHeap& heap, JinjaLoop& loop, std::string_view name);

bool is_function(std::string_view name);
JinjaValue call_function(JinjaHeap& heap, std::string_view name, const JinjaArguments& arguments);

JinjaValue apply_filter(JinjaHeap& heap, std::string_view name, const JinjaValue& input,
                        const JinjaArguments& arguments);
bool passes_test(JinjaHeap& heap, std::string_view name, const JinjaValue& input,
                 const JinjaArguments& arguments);

/// text % values
JinjaValue format_text(JinjaHeap& heap, std::string_view text, const JinjaValue& values);

/// The text without those of the characters at its ends; without spaces if `characters` is absent.
std::string_view strip_text(JinjaHeap& heap, std::string_view text, const JinjaValue& characters,
                            bool left, bool right);
JinjaValue replace_text(JinjaHeap& heap, std::string_view text, std::string_view from,
                        std::string_view to, const JinjaValue& most);
std::string upper_text(JinjaHeap& heap, std::string_view text);
std::string lower_text(JinjaHeap& heap, std::string_view text);
std::string capitalized(JinjaHeap& heap, std::string_view text);
std::string escaped_text(std::string_view text);  // for HTML
JinjaValues text_lines(JinjaHeap& heap, std::string_view text, bool with_ends);

}  // namespace kvatlas::model
