// SPDX-License-Identifier: Apache-2.0
// Filters, and the tests behind "is".
#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>
#include <optional>

#include "analyzer/jinja/jinja_methods_impl.hpp"
#include "base/unicode_text.hpp"

namespace kvatlas::model {

namespace {

/// What a filter is called with.
struct FilterCall {
  JinjaHeap& heap;
  std::string callee;  // for messages
  const JinjaValue& input;
  const JinjaArguments& arguments;

  JinjaValues match(std::initializer_list<std::string_view> names) const {
    return arguments.match(heap, callee, names);
  }
  std::string text() const { return to_text(heap, input); }
  JinjaValues values() const { return iterate(heap, input); }
  JinjaValue made(std::string text) const { return heap.string(std::move(text)); }
};

std::int64_t whole_or(const FilterCall& call, const JinjaValue& value, std::int64_t fallback) {
  if (value.is(JinjaKind::undefined)) return fallback;
  if (!value.is_whole()) call.heap.refuse(call.callee, " needs a whole number");
  return value.whole();
}

/// What "a.b.0" names in the object.
JinjaValue deep_attribute(const FilterCall& call, JinjaValue object, const JinjaValue& path) {
  if (!path.is_string()) return get_item(call.heap, object, path);
  std::string_view rest = path.text();
  while (true) {
    const std::size_t dot = rest.find('.');
    const std::string_view name = rest.substr(0, dot);
    std::int64_t index = 0;
    const auto read = std::from_chars(name.data(), name.data() + name.size(), index);
    object =
        get_item(call.heap, object,
                 !name.empty() && read.ec == std::errc() && read.ptr == name.data() + name.size()
                     ? JinjaValue::integer(index)
                     : JinjaValue::string(name));
    if (dot == rest.npos) return object;
    rest = rest.substr(dot + 1);
  }
}

/// What is left of the arguments behind the first `count` of them.
JinjaArguments behind(const JinjaArguments& arguments, std::size_t count) {
  JinjaArguments rest = arguments;
  rest.values.erase(rest.values.begin(), rest.values.begin() + static_cast<std::ptrdiff_t>(std::min(
                                                                   count, rest.values.size())));
  return rest;
}

/// What `map` and its like go through. Nothing, and what is false, gives nothing.
JinjaValues values_if_any(const FilterCall& call) {
  return is_true(call.input) ? call.values() : JinjaValues();
}

JinjaValue map_filter(const FilterCall& call) {
  JinjaValues mapped;
  const auto& named = call.arguments.named;
  const auto attribute = std::find_if(named.begin(), named.end(),
                                      [](const auto& one) { return one.first == "attribute"; });
  if (attribute != named.end()) {
    const auto given = call.match({"attribute", "default"});
    for (const JinjaValue& one : values_if_any(call)) {
      const JinjaValue found = deep_attribute(call, one, given[0]);
      mapped.push_back(found.is(JinjaKind::undefined) ? given[1] : found);
    }
  } else {
    if (call.arguments.values.empty() || !call.arguments.values[0].is_string())
      call.heap.refuse(call.callee, " needs the name of a filter, or an attribute");
    const JinjaArguments rest = behind(call.arguments, 1);
    for (const JinjaValue& one : values_if_any(call))
      mapped.push_back(apply_filter(call.heap, call.arguments.values[0].text(), one, rest));
  }
  return call.heap.stream(std::move(mapped));
}

/// select, reject, selectattr and rejectattr.
JinjaValue select_filter(const FilterCall& call, bool chosen, bool by_attribute) {
  const std::size_t skipped = by_attribute ? 1 : 0;
  const JinjaValues& given = call.arguments.values;
  if (given.size() < skipped) call.heap.refuse(call.callee, " needs an attribute");
  const bool has_test = given.size() > skipped;
  if (has_test && !given[skipped].is_string())
    call.heap.refuse(call.callee, " needs the name of a test");
  const JinjaArguments rest = behind(call.arguments, skipped + 1);
  JinjaValues kept;
  for (const JinjaValue& one : values_if_any(call)) {
    const JinjaValue looked_at = by_attribute ? deep_attribute(call, one, given[0]) : one;
    const bool passes = has_test ? passes_test(call.heap, given[skipped].text(), looked_at, rest)
                                 : is_true(looked_at);
    if (passes == chosen) kept.push_back(one);
  }
  return call.heap.stream(std::move(kept));
}

/// What is compared: an attribute if one is named, in lower case unless case counts.
JinjaValue sort_key(const FilterCall& call, const JinjaValue& value, const JinjaValue& attribute,
                    const JinjaValue& case_counts) {
  const bool by_attribute = !attribute.is(JinjaKind::undefined) && !attribute.is(JinjaKind::none);
  const JinjaValue key = by_attribute ? deep_attribute(call, value, attribute) : value;
  if (!key.is_string() || is_true(case_counts)) return key;
  return call.made(lower_text(call.heap, key.text()));
}

JinjaValues sorted(const FilterCall& call, const JinjaValues& values, const JinjaValue& attribute,
                   const JinjaValue& case_counts, bool reversed) {
  std::vector<std::pair<JinjaValue, JinjaValue>> keyed;
  for (const JinjaValue& one : values)
    keyed.emplace_back(sort_key(call, one, attribute, case_counts), one);
  std::stable_sort(keyed.begin(), keyed.end(), [&](const auto& a, const auto& b) {
    const int order = compare_values(call.heap, a.first, b.first);
    return reversed ? order > 0 : order < 0;
  });
  JinjaValues out;
  for (const auto& one : keyed) out.push_back(one.second);
  return out;
}

JinjaValue sort_filter(const FilterCall& call) {
  const auto given = call.match({"reverse", "case_sensitive", "attribute"});
  return call.heap.list(sorted(call, call.values(), given[2], given[1], is_true(given[0])));
}

JinjaValue dictsort_filter(const FilterCall& call) {
  const auto given = call.match({"case_sensitive", "by", "reverse"});
  if (!call.input.is(JinjaKind::dict)) call.heap.refuse(call.callee, " needs a dict");
  JinjaValues pairs;
  for (const auto& [key, value] : call.input.items())
    pairs.push_back(call.heap.tuple({key, value}));
  const bool by_value = given[1].is_string() && given[1].text() == "value";
  return call.heap.list(
      sorted(call, pairs, JinjaValue::integer(by_value ? 1 : 0), given[0], is_true(given[2])));
}

/// min and max.
JinjaValue extreme_filter(const FilterCall& call, bool largest) {
  const auto given = call.match({"case_sensitive", "attribute"});
  const JinjaValues all = sorted(call, call.values(), given[1], given[0], largest);
  return all.empty() ? JinjaValue::undefined("an item of nothing") : all.front();
}

JinjaValue unique_filter(const FilterCall& call) {
  const auto given = call.match({"case_sensitive", "attribute"});
  JinjaValues kept, keys;
  for (const JinjaValue& one : call.values()) {
    const JinjaValue key = sort_key(call, one, given[1], given[0]);
    if (std::any_of(keys.begin(), keys.end(),
                    [&](const JinjaValue& other) { return are_equal(call.heap, other, key); }))
      continue;
    keys.push_back(key);
    kept.push_back(one);
  }
  return call.heap.stream(std::move(kept));
}

JinjaValue join_filter(const FilterCall& call) {
  const auto given = call.match({"d", "attribute"});
  const std::string between = to_text(call.heap, given[0]);
  const bool by_attribute = !given[1].is(JinjaKind::undefined) && !given[1].is(JinjaKind::none);
  std::string out;
  bool first = true;
  for (const JinjaValue& one : call.values()) {
    if (!first) out += between;
    first = false;
    call.heap.spend(between.size());
    out += to_text(call.heap, by_attribute ? deep_attribute(call, one, given[1]) : one);
  }
  return call.made(std::move(out));
}

JinjaValue tojson_filter(const FilterCall& call) {
  const auto given = call.match({"ensure_ascii", "indent", "separators", "sort_keys"});
  JinjaJson style;
  style.ascii = is_true(given[0]);
  style.sorted = is_true(given[3]);
  if (!given[1].is(JinjaKind::undefined) && !given[1].is(JinjaKind::none)) {
    style.pretty = true;
    style.comma = ",";
    style.indent = given[1].is_string()
                       ? std::string(given[1].text())
                       : std::string(static_cast<std::size_t>(std::clamp<std::int64_t>(
                                         whole_or(call, given[1], 0), 0, 100)),
                                     ' ');
  }
  if (given[2].is_sequence() && given[2].values().size() == 2) {
    style.comma = to_text(call.heap, given[2].values()[0]);
    style.colon = to_text(call.heap, given[2].values()[1]);
  }
  return call.made(to_json(call.heap, call.input, style));
}

JinjaValue indent_filter(const FilterCall& call) {
  const auto given = call.match({"width", "first", "blank"});
  const std::string indent = given[0].is_string()
                                 ? std::string(given[0].text())
                                 : std::string(static_cast<std::size_t>(std::clamp<std::int64_t>(
                                                   whole_or(call, given[0], 4), 0, 1000)),
                                               ' ');
  const std::string text = call.text() + "\n";
  std::string out = is_true(given[1]) ? indent : "";
  bool first = true;
  for (const JinjaValue& line : text_lines(call.heap, text, false)) {
    call.heap.spend(indent.size());
    if (!first) out += "\n";
    if (!first && (is_true(given[2]) || !line.text().empty())) out += indent;
    first = false;
    out += line.text();
  }
  return call.made(std::move(out));
}

/// The first letter of each word large, where words end at spaces, hyphens and opening brackets.
JinjaValue title_filter(const FilterCall& call) {
  const std::string text = call.text();
  std::string out;
  std::size_t begin = 0;
  const auto end_word = [&](std::size_t end) {
    out += capitalized(call.heap, std::string_view(text).substr(begin, end - begin));
  };
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Char c = read_utf8(text, at);
    if (is_space(c.code) || std::string_view("-({[<").find(text[at]) != std::string_view::npos) {
      end_word(at);
      out += text.substr(at, c.length);
      begin = at + c.length;
    }
    at += c.length;
  }
  end_word(text.size());
  return call.made(std::move(out));
}

JinjaValue string_filter(const FilterCall& call) {
  call.match({});
  return call.input.is_string() ? call.input : call.made(call.text());
}
JinjaValue safe_filter(const FilterCall& call) { return string_filter(call).marked_safe(true); }
JinjaValue escape_filter(const FilterCall& call) {
  const JinjaValue text = string_filter(call);
  return text.is_safe() ? text : call.made(escaped_text(text.text())).marked_safe(true);
}

/// A number as a text writes it; nullopt if it writes none.
template <class Number>
std::optional<Number> read_number(std::string_view text) {
  if (text.starts_with('+')) text.remove_prefix(1);
  Number number{};
  const auto read = std::from_chars(text.data(), text.data() + text.size(), number);
  if (read.ec != std::errc() || read.ptr != text.data() + text.size()) return std::nullopt;
  return number;
}

JinjaValue int_filter(const FilterCall& call) {
  const auto given = call.match({"default", "base"});
  const JinjaValue fallback = given[0].is(JinjaKind::undefined) ? JinjaValue::integer(0) : given[0];
  if (whole_or(call, given[1], 10) != 10) call.heap.lacks(call.callee, " knows base 10 alone");
  if (call.input.is_whole()) return JinjaValue::integer(call.input.whole());
  double real = 0;
  if (call.input.is_string()) {
    const std::string_view text = strip_text(call.heap, call.input.text(), {}, true, true);
    if (const auto whole = read_number<std::int64_t>(text)) return JinjaValue::integer(*whole);
    const auto number = read_number<double>(text);
    if (!number) return fallback;
    real = *number;
  } else if (call.input.is(JinjaKind::real)) {
    real = call.input.number();
  } else {
    return fallback;
  }
  return std::abs(real) < 9e18 ? JinjaValue::integer(static_cast<std::int64_t>(real)) : fallback;
}

JinjaValue float_filter(const FilterCall& call) {
  const auto given = call.match({"default"});
  if (call.input.is_number()) return JinjaValue::real(call.input.number());
  if (call.input.is_string())
    if (const auto number =
            read_number<double>(strip_text(call.heap, call.input.text(), {}, true, true)))
      return JinjaValue::real(*number);
  return given[0].is(JinjaKind::undefined) ? JinjaValue::real(0) : given[0];
}

JinjaValue round_filter(const FilterCall& call) {
  const auto given = call.match({"precision", "method"});
  if (!call.input.is_number()) call.heap.refuse(call.callee, " needs a number");
  const auto digits = std::clamp<std::int64_t>(whole_or(call, given[0], 0), -300, 300);
  const std::string method =
      given[1].is(JinjaKind::undefined) ? "common" : to_text(call.heap, given[1]);
  const double scale = std::pow(10.0, static_cast<double>(digits));
  const double scaled = call.input.number() * scale;
  const double rounded = method == "ceil"    ? std::ceil(scaled)
                         : method == "floor" ? std::floor(scaled)
                                             : std::nearbyint(scaled);
  return JinjaValue::real(rounded / scale);
}

JinjaValue sum_filter(const FilterCall& call) {
  const auto given = call.match({"attribute", "start"});
  const bool by_attribute = !given[0].is(JinjaKind::undefined) && !given[0].is(JinjaKind::none);
  std::int64_t whole = 0;
  double real = 0;
  bool is_real = false;
  const auto add = [&](const JinjaValue& value) {
    if (!value.is_number()) call.heap.refuse(call.callee, " needs numbers");
    is_real |= value.is(JinjaKind::real);
    real += value.number();
    if (value.is_whole() && __builtin_add_overflow(whole, value.whole(), &whole))
      call.heap.refuse("the sum is too large");
  };
  if (!given[1].is(JinjaKind::undefined)) add(given[1]);
  for (const JinjaValue& one : call.values())
    add(by_attribute ? deep_attribute(call, one, given[0]) : one);
  return is_real ? JinjaValue::real(real) : JinjaValue::integer(whole);
}

JinjaValue length_filter(const FilterCall& call) {
  call.match({});
  switch (call.input.kind()) {
    case JinjaKind::undefined:
      return JinjaValue::integer(0);
    case JinjaKind::string:
      call.heap.spend(call.input.text().size() / 8);
      return JinjaValue::integer(static_cast<std::int64_t>(count_characters(call.input.text())));
    case JinjaKind::list:
    case JinjaKind::tuple:
      return JinjaValue::integer(static_cast<std::int64_t>(call.input.values().size()));
    case JinjaKind::dict:
      return JinjaValue::integer(static_cast<std::int64_t>(call.input.items().size()));
    default:
      call.heap.refuse("a value of type ", kind_name(call.input), " has no length");
  }
}

JinjaValue first_filter(const FilterCall& call) {
  call.match({});
  if (call.input.is(JinjaKind::stream)) {
    auto& stream = call.input.as<JinjaStream>();
    return stream.read < stream.values.size() ? stream.values[stream.read++]
                                              : JinjaValue::undefined("the first of nothing");
  }
  const JinjaValues all = call.values();
  return all.empty() ? JinjaValue::undefined("the first of nothing") : all.front();
}

JinjaValue last_filter(const FilterCall& call) {
  call.match({});
  if (call.input.is(JinjaKind::stream))
    call.heap.refuse("a value of type ", kind_name(call.input), " has no last one");
  const JinjaValues all = call.values();
  return all.empty() ? JinjaValue::undefined("the last of nothing") : all.back();
}

JinjaValue reverse_filter(const FilterCall& call) {
  call.match({});
  JinjaValues all = call.values();
  std::reverse(all.begin(), all.end());
  if (!call.input.is_string()) return call.heap.stream(std::move(all));
  std::string text;
  for (const JinjaValue& one : all) text += one.text();
  return call.made(std::move(text));
}

JinjaValue default_filter(const FilterCall& call) {
  const auto given = call.match({"default_value", "boolean"});
  const bool absent =
      is_true(given[1]) ? !is_true(call.input) : call.input.is(JinjaKind::undefined);
  if (!absent) return call.input;
  const bool has_default = !call.arguments.values.empty() || !given[0].is(JinjaKind::undefined);
  return has_default ? given[0] : JinjaValue::string("");
}

JinjaValue items_filter(const FilterCall& call) {
  call.match({});
  if (call.input.is(JinjaKind::undefined)) return call.heap.stream({});
  if (!call.input.is(JinjaKind::dict)) call.heap.refuse(call.callee, " needs a dict");
  JinjaValues pairs;
  for (const auto& [key, value] : call.input.items())
    pairs.push_back(call.heap.tuple({key, value}));
  return call.heap.stream(std::move(pairs));
}

JinjaValue replace_filter(const FilterCall& call) {
  const auto given = call.match({"old", "new", "count"});
  const JinjaValue count = given[2].is(JinjaKind::none) ? JinjaValue() : given[2];
  const JinjaValue text = call.made(call.text());
  return replace_text(call.heap, text.text(), to_text(call.heap, given[0]),
                      to_text(call.heap, given[1]), count);
}

JinjaValue trim_filter(const FilterCall& call) {
  const auto given = call.match({"chars"});
  const JinjaValue text = call.input.is_string() ? call.input : call.made(call.text());
  return JinjaValue::string(strip_text(call.heap, text.text(), given[0], true, true))
      .marked_safe(text.is_safe());
}

JinjaValue abs_filter(const FilterCall& call) {
  call.match({});
  if (!call.input.is_number()) call.heap.refuse(call.callee, " needs a number");
  if (call.input.is(JinjaKind::real)) return JinjaValue::real(std::abs(call.input.number()));
  if (call.input.whole() == INT64_MIN) call.heap.refuse("the number is too large");
  return JinjaValue::integer(std::abs(call.input.whole()));
}

JinjaValue format_filter(const FilterCall& call) {
  JinjaItems named;
  for (const auto& [key, value] : call.arguments.named)
    named.emplace_back(JinjaValue::string(key), value);
  return format_text(
      call.heap, call.text(),
      named.empty() ? call.heap.tuple(call.arguments.values) : call.heap.dict(std::move(named)));
}

JinjaValue attr_filter(const FilterCall& call) {
  const auto given = call.match({"name"});
  if (!given[0].is_string()) call.heap.refuse(call.callee, " needs a name");
  // Members of a dict are no attributes.
  if (call.input.is(JinjaKind::dict) && !is_method(JinjaKind::dict, given[0].text()))
    return JinjaValue::undefined(given[0].text());
  return get_attribute(call.heap, call.input, given[0].text());
}

using Filter = std::function<JinjaValue(const FilterCall&)>;

const std::vector<std::pair<std::string_view, Filter>>& filters() {
  static const std::vector<std::pair<std::string_view, Filter>> all = {
      {"abs", abs_filter},
      {"attr", attr_filter},
      {"capitalize",
       [](const FilterCall& call) { return call.made(capitalized(call.heap, call.text())); }},
      {"count", length_filter},
      {"d", default_filter},
      {"default", default_filter},
      {"dictsort", dictsort_filter},
      {"e", escape_filter},
      {"escape", escape_filter},
      {"first", first_filter},
      {"float", float_filter},
      {"format", format_filter},
      {"indent", indent_filter},
      {"int", int_filter},
      {"items", items_filter},
      {"join", join_filter},
      {"last", last_filter},
      {"length", length_filter},
      {"list", [](const FilterCall& call) { return call.heap.list(call.values()); }},
      {"lower",
       [](const FilterCall& call) { return call.made(lower_text(call.heap, call.text())); }},
      {"map", map_filter},
      {"max", [](const FilterCall& call) { return extreme_filter(call, true); }},
      {"min", [](const FilterCall& call) { return extreme_filter(call, false); }},
      {"reject", [](const FilterCall& call) { return select_filter(call, false, false); }},
      {"rejectattr", [](const FilterCall& call) { return select_filter(call, false, true); }},
      {"replace", replace_filter},
      {"reverse", reverse_filter},
      {"round", round_filter},
      {"safe", safe_filter},
      {"select", [](const FilterCall& call) { return select_filter(call, true, false); }},
      {"selectattr", [](const FilterCall& call) { return select_filter(call, true, true); }},
      {"sort", sort_filter},
      {"string", string_filter},
      {"sum", sum_filter},
      {"title", title_filter},
      {"tojson", tojson_filter},
      {"trim", trim_filter},
      {"unique", unique_filter},
      {"upper",
       [](const FilterCall& call) { return call.made(upper_text(call.heap, call.text())); }},
  };
  return all;
}

/// The operators that tests know under several names.
std::string_view comparison_of(std::string_view test) {
  constexpr std::pair<std::string_view, std::string_view> kNames[] = {
      {"==", "=="}, {"eq", "=="}, {"equalto", "=="},    {"!=", "!="}, {"ne", "!="},
      {"<", "<"},   {"lt", "<"},  {"lessthan", "<"},    {"<=", "<="}, {"le", "<="},
      {">", ">"},   {"gt", ">"},  {"greaterthan", ">"}, {">=", ">="}, {"ge", ">="}};
  for (const auto& [name, sign] : kNames)
    if (name == test) return sign;
  return {};
}

}  // namespace

JinjaValue apply_filter(JinjaHeap& heap, std::string_view name, const JinjaValue& input,
                        const JinjaArguments& arguments) {
  const auto& all = filters();
  const auto found =
      std::find_if(all.begin(), all.end(), [&](const auto& one) { return one.first == name; });
  if (found == all.end()) heap.lacks("the filter ", quoted(name), " is not supported");
  heap.spend(16);
  return found->second(FilterCall{heap, str("the filter ", quoted(name)), input, arguments});
}

bool passes_test(JinjaHeap& heap, std::string_view name, const JinjaValue& input,
                 const JinjaArguments& arguments) {
  heap.spend(16);
  const std::string callee = str("the test ", quoted(name));
  if (const std::string_view sign = comparison_of(name); !sign.empty()) {
    const JinjaValue other = arguments.match(heap, callee, {"other"})[0];
    if (sign == "==" || sign == "!=") return are_equal(heap, input, other) == (sign == "==");
    const int order = compare_values(heap, input, other);
    return sign == "<"    ? order < 0
           : sign == "<=" ? order <= 0
           : sign == ">"  ? order > 0
                          : order >= 0;
  }
  if (name == "in") return holds(heap, arguments.match(heap, callee, {"seq"})[0], input);
  if (name == "sameas") {
    const JinjaValue other = arguments.match(heap, callee, {"other"})[0];
    return input.kind() == other.kind() && are_equal(heap, input, other);
  }
  if (name == "divisibleby") {
    const JinjaValue by = arguments.match(heap, callee, {"num"})[0];
    if (!input.is_whole() || !by.is_whole() || by.whole() == 0)
      heap.refuse(callee, " needs whole numbers");
    return by.whole() == -1 || input.whole() % by.whole() == 0;
  }
  arguments.match(heap, callee, {});
  const JinjaKind kind = input.kind();
  if (name == "defined") return kind != JinjaKind::undefined;
  if (name == "undefined") return kind == JinjaKind::undefined;
  if (name == "none") return kind == JinjaKind::none;
  if (name == "boolean") return kind == JinjaKind::boolean;
  if (name == "true") return kind == JinjaKind::boolean && input.whole() == 1;
  if (name == "false") return kind == JinjaKind::boolean && input.whole() == 0;
  if (name == "integer") return kind == JinjaKind::integer;
  if (name == "float") return kind == JinjaKind::real;
  if (name == "number") return input.is_number();
  if (name == "string") return kind == JinjaKind::string;
  if (name == "mapping") return kind == JinjaKind::dict;
  // What is undefined is empty, and so can be looped over.
  const bool has_items = input.is_sequence() || kind == JinjaKind::dict ||
                         kind == JinjaKind::string || kind == JinjaKind::undefined;
  if (name == "sequence") return has_items;
  if (name == "iterable") return has_items || kind == JinjaKind::stream || kind == JinjaKind::loop;
  if (name == "callable")
    return kind == JinjaKind::function || kind == JinjaKind::method || kind == JinjaKind::macro ||
           kind == JinjaKind::loop || kind == JinjaKind::undefined;
  if (name == "odd" || name == "even") {
    if (!input.is_whole()) heap.refuse(callee, " needs a whole number");
    return (input.whole() % 2 != 0) == (name == "odd");
  }
  if (name == "lower" || name == "upper") {
    // As in Python, a text without letters is neither.
    const std::string text = to_text(heap, input);
    const std::string small = lower_text(heap, text), large = upper_text(heap, text);
    return small != large && text == (name == "lower" ? small : large);
  }
  heap.lacks(callee, " is not supported");
}

JinjaValue format_text(JinjaHeap& heap, std::string_view text, const JinjaValue& values) {
  std::string out;
  std::size_t next = 0;
  for (std::size_t at = 0; at < text.size(); ++at) {
    heap.spend(1);
    if (text[at] != '%') {
      out += text[at];
      continue;
    }
    ++at;
    if (at < text.size() && text[at] == '%') {
      out += '%';
      continue;
    }
    JinjaValue value;
    if (at < text.size() && text[at] == '(') {
      const std::size_t end = text.find(')', at);
      if (end == text.npos || !values.is(JinjaKind::dict))
        heap.refuse("the values of a '%' are no dict");
      const JinjaValue* found =
          find_item(heap, values.items(), JinjaValue::string(text.substr(at + 1, end - at - 1)));
      if (found == nullptr) heap.refuse("a value of a '%' is missing");
      value = *found;
      at = end + 1;
    } else {
      const bool several = values.is(JinjaKind::tuple);
      if (next >= (several ? values.values().size() : 1))
        heap.refuse("a value of a '%' is missing");
      value = several ? values.values()[next] : values;
      ++next;
    }
    const char kind = at < text.size() ? text[at] : '\0';
    if (kind == 's') {
      out += to_text(heap, value);
    } else if ((kind == 'd' || kind == 'i') && value.is_whole()) {
      out += std::to_string(value.whole());
    } else {
      heap.lacks("of what '%' formats, %s, %d and %% are supported");
    }
  }
  if (values.is(JinjaKind::tuple) && next < values.values().size())
    heap.refuse("there are more values than '%' formats");
  return heap.string(std::move(out));
}

}  // namespace kvatlas::model
