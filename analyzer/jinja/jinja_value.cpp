// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "analyzer/jinja/jinja_methods_impl.hpp"
#include "analyzer/jinja/jinja_value_impl.hpp"
#include "base/error.hpp"
#include "base/unicode_text.hpp"

namespace kvatlas::model {

namespace {

constexpr int kDeepestValue = 100;

void check_depth(JinjaHeap& heap, int depth) {
  if (depth > kDeepestValue)
    heap.refuse("a value is nested deeper than ", kDeepestValue, " levels");
  heap.spend(16);
}

}  // namespace

// The heap.

void JinjaHeap::give_up() const { refuse("the template runs too long, or makes too much"); }
void JinjaHeap::refuse_text(const std::string& text) const {
  fail(ErrorCode::unreadable, "line ", line, ": ", printable(text, 400));
}
void JinjaHeap::lacks_text(const std::string& text) const {
  fail(ErrorCode::unsupported, "line ", line, ": ", printable(text, 400));
}

JinjaValue JinjaHeap::string(std::string text) {
  spend(text.size() + sizeof(std::string));
  return JinjaValue::string(strings_.emplace_back(std::move(text)));
}
JinjaValue JinjaHeap::sequence(JinjaKind kind, JinjaValues values) {
  spend(values.size() * sizeof(JinjaValue) + sizeof(JinjaValues));
  return JinjaValue::thing(kind, &sequences_.emplace_back(std::move(values)));
}
JinjaValue JinjaHeap::dict(JinjaItems items) {
  spend(items.size() * sizeof(JinjaItems::value_type) + sizeof(JinjaItems));
  return JinjaValue::thing(JinjaKind::dict, &dicts_.emplace_back(std::move(items)));
}
JinjaValue JinjaHeap::stream(JinjaValues values) {
  spend(values.size() * sizeof(JinjaValue) + sizeof(JinjaStream));
  return JinjaValue::thing(JinjaKind::stream,
                           &streams_.emplace_back(JinjaStream{std::move(values)}));
}
JinjaValue JinjaHeap::attributes() {
  return JinjaValue::thing(JinjaKind::attributes, &scope(nullptr));
}
JinjaValue JinjaHeap::macro(const JinjaNode* node, JinjaScope* scope) {
  spend(sizeof(JinjaMacro));
  return JinjaValue::thing(JinjaKind::macro, &macros_.emplace_back(JinjaMacro{node, scope}));
}
JinjaValue JinjaHeap::method(JinjaValue object, std::string_view name) {
  spend(sizeof(JinjaMethod));
  return JinjaValue::thing(JinjaKind::method, &methods_.emplace_back(JinjaMethod{object, name}));
}
JinjaLoop& JinjaHeap::loop() {
  spend(sizeof(JinjaLoop));
  return loops_.emplace_back();
}
JinjaScope& JinjaHeap::scope(JinjaScope* outer) {
  spend(sizeof(JinjaScope));
  return scopes_.emplace_back(JinjaScope{outer, {}});
}

JinjaValue JinjaHeap::json(const nlohmann::ordered_json& value) {
  using Type = nlohmann::ordered_json::value_t;
  switch (value.type()) {
    case Type::null:
      return JinjaValue::none();
    case Type::boolean:
      return JinjaValue::boolean(value.get<bool>());
    case Type::number_integer:
    case Type::number_unsigned:
      return JinjaValue::integer(value.get<std::int64_t>());
    case Type::number_float:
      return JinjaValue::real(value.get<double>());
    case Type::string:
      return JinjaValue::string(value.get_ref<const std::string&>());
    case Type::array: {
      JinjaValues values;
      for (const auto& one : value) values.push_back(json(one));
      return list(std::move(values));
    }
    default: {
      JinjaItems items;
      for (const auto& [key, one] : value.items())
        items.emplace_back(JinjaValue::string(strings_.emplace_back(key)), json(one));
      return dict(std::move(items));
    }
  }
}

JinjaValue* JinjaScope::find(std::string_view name) {
  for (auto& [key, value] : variables)
    if (key == name) return &value;
  return nullptr;
}
void JinjaScope::set(std::string_view name, JinjaValue value) {
  if (JinjaValue* found = find(name)) {
    *found = value;
  } else {
    variables.emplace_back(name, value);
  }
}

// What Python does with values.

const char* kind_name(const JinjaValue& value) {
  constexpr const char* kNames[] = {"Undefined", "NoneType", "bool",   "int",   "float",
                                    "str",       "list",     "tuple",  "dict",  "generator",
                                    "Namespace", "function", "method", "Macro", "LoopContext"};
  return kNames[static_cast<std::size_t>(value.kind())];
}

bool is_true(const JinjaValue& value) {
  switch (value.kind()) {
    case JinjaKind::undefined:
    case JinjaKind::none:
      return false;
    case JinjaKind::boolean:
    case JinjaKind::integer:
      return value.whole() != 0;
    case JinjaKind::real:
      return value.number() != 0;
    case JinjaKind::string:
      return !value.text().empty();
    case JinjaKind::list:
    case JinjaKind::tuple:
      return !value.values().empty();
    case JinjaKind::dict:
      return !value.items().empty();
    default:
      return true;
  }
}

bool are_equal(JinjaHeap& heap, const JinjaValue& a, const JinjaValue& b, int depth) {
  check_depth(heap, depth);
  if (a.is_whole() && b.is_whole()) return a.whole() == b.whole();
  if (a.is_number() && b.is_number()) return a.number() == b.number();
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case JinjaKind::undefined:
    case JinjaKind::none:
      return true;
    case JinjaKind::string:
      heap.spend(std::min(a.text().size(), b.text().size()) / 16);
      return a.text() == b.text();
    case JinjaKind::function:
      return a.text() == b.text();
    case JinjaKind::list:
    case JinjaKind::tuple:
      return std::equal(a.values().begin(), a.values().end(), b.values().begin(), b.values().end(),
                        [&](const JinjaValue& x, const JinjaValue& y) {
                          return are_equal(heap, x, y, depth + 1);
                        });
    case JinjaKind::dict:
      if (a.items().size() != b.items().size()) return false;
      return std::all_of(a.items().begin(), a.items().end(), [&](const auto& item) {
        const JinjaValue* other = find_item(heap, b.items(), item.first);
        return other != nullptr && are_equal(heap, item.second, *other, depth + 1);
      });
    default:
      return a.identity() == b.identity();
  }
}

int compare_values(JinjaHeap& heap, const JinjaValue& a, const JinjaValue& b, int depth) {
  check_depth(heap, depth);
  const auto order = [](const auto& x, const auto& y) { return x < y ? -1 : y < x ? 1 : 0; };
  if (a.is_whole() && b.is_whole()) return order(a.whole(), b.whole());
  if (a.is_number() && b.is_number()) return order(a.number(), b.number());
  if (a.is_string() && b.is_string()) {
    heap.spend(std::min(a.text().size(), b.text().size()) / 16);
    return order(a.text(), b.text());
  }
  if (a.is_sequence() && a.kind() == b.kind()) {
    const std::size_t both = std::min(a.values().size(), b.values().size());
    for (std::size_t k = 0; k < both; ++k) {
      const int one = compare_values(heap, a.values()[k], b.values()[k], depth + 1);
      if (one != 0) return one;
    }
    return order(a.values().size(), b.values().size());
  }
  for (const JinjaValue& one : {a, b})
    if (one.is(JinjaKind::undefined)) heap.refuse(quoted(one.text()), " is undefined");
  heap.refuse("values of types ", kind_name(a), " and ", kind_name(b), " have no order");
}

bool holds(JinjaHeap& heap, const JinjaValue& whole, const JinjaValue& part) {
  if (whole.is_string()) {
    if (!part.is_string())
      heap.refuse("'in' of a text needs a text, not ",
                  part.is(JinjaKind::undefined) ? str(quoted(part.text()), ", which is undefined")
                                                : kind_name(part));
    return find_bytes(heap, whole.text(), part.text(), 0) != std::string_view::npos;
  }
  if (whole.is(JinjaKind::dict)) return find_item(heap, whole.items(), part) != nullptr;
  const JinjaValues values = iterate(heap, whole);
  return std::any_of(values.begin(), values.end(),
                     [&](const JinjaValue& one) { return are_equal(heap, one, part); });
}

const JinjaValue* find_item(JinjaHeap& heap, const JinjaItems& items, const JinjaValue& key) {
  for (const auto& [one, value] : items)
    if (are_equal(heap, one, key)) return &value;
  return nullptr;
}

void set_item(JinjaHeap& heap, JinjaItems& items, const JinjaValue& key, const JinjaValue& value) {
  if (const JinjaValue* found = find_item(heap, items, key)) {
    const_cast<JinjaValue&>(*found) = value;
  } else {
    items.emplace_back(key, value);
  }
}

JinjaValues iterate(JinjaHeap& heap, const JinjaValue& value) {
  switch (value.kind()) {
    case JinjaKind::undefined:
      return {};
    case JinjaKind::string:
      return characters(heap, value.text());
    case JinjaKind::list:
    case JinjaKind::tuple:
      heap.spend(value.values().size());
      return value.values();
    case JinjaKind::dict: {
      JinjaValues keys;
      heap.spend(value.items().size());
      for (const auto& item : value.items()) keys.push_back(item.first);
      return keys;
    }
    case JinjaKind::stream: {
      auto& stream = value.as<JinjaStream>();
      JinjaValues rest(stream.values.begin() + static_cast<std::ptrdiff_t>(stream.read),
                       stream.values.end());
      heap.spend(rest.size());
      stream.read = stream.values.size();
      return rest;
    }
    default:
      heap.refuse("a value of type ", kind_name(value), " cannot be looped over");
  }
}

// Characters of texts.

std::size_t count_characters(std::string_view text) {
  std::size_t count = 0;
  for (std::size_t at = 0; at < text.size(); at += read_utf8(text, at).length) ++count;
  return count;
}

JinjaValues characters(JinjaHeap& heap, std::string_view text) {
  JinjaValues all;
  heap.spend(text.size() * sizeof(JinjaValue));
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = read_utf8(text, at).length;
    all.push_back(JinjaValue::string(text.substr(at, length)));
    at += length;
  }
  return all;
}

std::size_t bytes_of(std::string_view text, std::size_t count) {
  std::size_t at = 0;
  for (; count > 0 && at < text.size(); --count) at += read_utf8(text, at).length;
  return at;
}

// Attributes, items and slices.

JinjaValue get_attribute(JinjaHeap& heap, const JinjaValue& object, std::string_view name) {
  switch (object.kind()) {
    case JinjaKind::undefined:
      heap.refuse(quoted(object.text()), " is undefined");
    case JinjaKind::attributes:
      if (const JinjaValue* found = object.as<JinjaScope>().find(name)) return *found;
      break;
    case JinjaKind::loop:
      return loop_attribute(heap, object.as<JinjaLoop>(), name);
    case JinjaKind::dict:
      if (is_method(JinjaKind::dict, name)) return heap.method(object, name);
      if (const auto* found = find_item(heap, object.items(), JinjaValue::string(name)))
        return *found;
      break;
    default:
      if (is_method(object.kind(), name)) return heap.method(object, name);
      break;
  }
  return JinjaValue::undefined(name);
}

JinjaValue get_item(JinjaHeap& heap, const JinjaValue& object, const JinjaValue& index) {
  if (object.is(JinjaKind::undefined)) heap.refuse(quoted(object.text()), " is undefined");
  if (object.is(JinjaKind::dict)) {
    if (const JinjaValue* found = find_item(heap, object.items(), index)) return *found;
  } else if (index.is_whole() && (object.is_sequence() || object.is_string())) {
    const bool is_text = object.is_string();
    if (is_text) heap.spend(object.text().size() / 8);
    const auto size = static_cast<std::int64_t>(is_text ? count_characters(object.text())
                                                        : object.values().size());
    const std::int64_t at = index.whole() < 0 ? index.whole() + size : index.whole();
    if (at < 0 || at >= size) return JinjaValue::undefined("an item beyond the end");
    if (!is_text) return object.values()[static_cast<std::size_t>(at)];
    const std::string_view rest =
        object.text().substr(bytes_of(object.text(), static_cast<std::size_t>(at)));
    return JinjaValue::string(rest.substr(0, bytes_of(rest, 1)));
  }
  if (!index.is_string()) return JinjaValue::undefined("such an item");
  // An item comes before a method of that name.
  return object.is(JinjaKind::dict) && !is_method(JinjaKind::dict, index.text())
             ? JinjaValue::undefined(index.text())
             : get_attribute(heap, object, index.text());
}

JinjaValue get_slice(JinjaHeap& heap, const JinjaValue& object, const JinjaValue& start,
                     const JinjaValue& stop, const JinjaValue& step) {
  if (object.is(JinjaKind::undefined)) heap.refuse(quoted(object.text()), " is undefined");
  if (!object.is_sequence() && !object.is_string())
    heap.refuse("a value of type ", kind_name(object), " has no slices");
  for (const JinjaValue& part : {start, stop, step})
    if (!part.is(JinjaKind::none) && !part.is_whole())
      heap.refuse("a slice goes from a whole number to a whole number");
  const JinjaValues all =
      object.is_string() ? characters(heap, object.text()) : iterate(heap, object);
  const auto size = static_cast<std::int64_t>(all.size());
  const std::int64_t by = step.is(JinjaKind::none) ? 1 : step.whole();
  if (by == 0) heap.refuse("the step of a slice cannot be 0");
  const std::int64_t least = by < 0 ? -1 : 0, most = by < 0 ? size - 1 : size;
  const auto place = [&](const JinjaValue& part, std::int64_t fallback) {
    if (part.is(JinjaKind::none)) return fallback;
    const std::int64_t at = part.whole() < 0 ? part.whole() + size : part.whole();
    return std::clamp(at, least, most);
  };
  const std::int64_t begin = place(start, by < 0 ? most : 0), end = place(stop, by < 0 ? -1 : size);
  JinjaValues chosen;
  for (std::int64_t at = begin; by > 0 ? at < end : at > end;) {
    chosen.push_back(all[static_cast<std::size_t>(at)]);
    // What is left is compared, so that no sum can overflow.
    if (by > 0 ? end - at <= by : at - end <= -(by + 1)) break;
    at += by;
  }
  if (!object.is_string())
    return object.is(JinjaKind::tuple) ? heap.tuple(std::move(chosen))
                                       : heap.list(std::move(chosen));
  if (by == 1 && !chosen.empty()) {
    const char* first = chosen.front().text().data();
    const std::string_view last = chosen.back().text();
    return JinjaValue::string({first, static_cast<std::size_t>(last.data() + last.size() - first)});
  }
  std::string text;
  for (const JinjaValue& one : chosen) text += one.text();
  return heap.string(std::move(text));
}

// Texts of values.

std::string real_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char shortest[40];
  const auto wrote =
      std::to_chars(shortest, shortest + sizeof shortest, value, std::chars_format::scientific);
  std::string text(shortest, wrote.ptr);  // -d.ddde+xx
  const auto mark = text.find('e');
  const char* const digits = text.c_str() + mark + (text[mark + 1] == '+' ? 2 : 1);
  int exponent = 0;
  std::from_chars(digits, text.c_str() + text.size(), exponent);
  if (exponent < -4 || exponent >= 16) return text;
  const auto fixed =
      std::to_chars(shortest, shortest + sizeof shortest, value, std::chars_format::fixed);
  text.assign(shortest, fixed.ptr);
  return text.find('.') == text.npos ? text + ".0" : text;
}

namespace {

void append_hex(std::string& out, const char* head, unsigned code, int digits) {
  char text[16];
  std::snprintf(text, sizeof text, "%s%0*x", head, digits, code);
  out += text;
}

/// A text in quotes, as Python shows it.
void append_repr(std::string& out, std::string_view text) {
  const char quote = text.find('\'') != text.npos && text.find('"') == text.npos ? '"' : '\'';
  out += quote;
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Char c = read_utf8(text, at);
    if (c.code == static_cast<char32_t>(quote) || c.code == '\\') {
      out += '\\';
      out += text[at];
    } else if (c.code == '\n' || c.code == '\r' || c.code == '\t') {
      out += c.code == '\n' ? "\\n" : c.code == '\r' ? "\\r" : "\\t";
    } else if (c.code < 0x20 || (c.code >= 0x7f && c.code < 0xa1) || c.code == 0xad) {
      append_hex(out, "\\x", c.code, 2);
    } else if (c.code != ' ' && is_space(c.code)) {
      append_hex(out, "\\u", c.code, 4);
    } else {
      out += text.substr(at, c.length);
    }
    at += c.length;
  }
  out += quote;
}

void append_text(JinjaHeap& heap, std::string& out, const JinjaValue& value, int depth) {
  check_depth(heap, depth);
  switch (value.kind()) {
    case JinjaKind::undefined:
      if (depth > 0) out += "Undefined";
      return;
    case JinjaKind::none:
      out += "None";
      return;
    case JinjaKind::boolean:
      out += value.whole() != 0 ? "True" : "False";
      return;
    case JinjaKind::integer:
      out += std::to_string(value.whole());
      return;
    case JinjaKind::real:
      out += real_text(value.number());
      return;
    case JinjaKind::string:
      heap.spend(value.text().size());
      if (depth == 0) {
        out += value.text();
      } else {
        append_repr(out, value.text());
      }
      return;
    case JinjaKind::list:
    case JinjaKind::tuple: {
      const bool is_list = value.is(JinjaKind::list);
      out += is_list ? '[' : '(';
      const char* separator = "";
      for (const JinjaValue& one : value.values()) {
        out += separator;
        separator = ", ";
        append_text(heap, out, one, depth + 1);
      }
      if (!is_list && value.values().size() == 1) out += ',';
      out += is_list ? ']' : ')';
      return;
    }
    case JinjaKind::dict: {
      out += '{';
      const char* separator = "";
      for (const auto& [key, one] : value.items()) {
        out += separator;
        separator = ", ";
        append_text(heap, out, key, depth + 1);
        out += ": ";
        append_text(heap, out, one, depth + 1);
      }
      out += '}';
      return;
    }
    default:
      heap.lacks("a value of type ", kind_name(value), " has no text");
  }
}

void append_json_text(std::string& out, std::string_view text, bool ascii) {
  constexpr std::string_view kShort = "\"\\\n\r\t\b\f", kLetters = "\"\\nrtbf";
  out += '"';
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Char c = read_utf8(text, at);
    const auto letter = c.code < 0x80 ? kShort.find(static_cast<char>(c.code)) : kShort.npos;
    if (letter != kShort.npos) {
      out += '\\';
      out += kLetters[letter];
    } else if (c.code < 0x20 || (ascii && c.code > 0x7e && c.code <= 0xffff)) {
      append_hex(out, "\\u", c.code, 4);
    } else if (ascii && c.code > 0xffff) {
      append_hex(out, "\\u", 0xd800 + ((c.code - 0x10000) >> 10), 4);
      append_hex(out, "\\u", 0xdc00 + ((c.code - 0x10000) & 0x3ff), 4);
    } else {
      out += text.substr(at, c.length);
    }
    at += c.length;
  }
  out += '"';
}

class JsonWriter {
 public:
  JsonWriter(JinjaHeap& heap, const JinjaJson& style) : heap_(heap), style_(style) {}

  void write(const JinjaValue& value, int depth) {
    check_depth(heap_, depth);
    switch (value.kind()) {
      case JinjaKind::none:
        out += "null";
        return;
      case JinjaKind::boolean:
        out += value.whole() != 0 ? "true" : "false";
        return;
      case JinjaKind::integer:
        out += std::to_string(value.whole());
        return;
      case JinjaKind::real:
        out += std::isnan(value.number())   ? "NaN"
               : std::isinf(value.number()) ? (value.number() < 0 ? "-Infinity" : "Infinity")
                                            : real_text(value.number());
        return;
      case JinjaKind::string:
        heap_.spend(value.text().size());
        append_json_text(out, value.text(), style_.ascii);
        return;
      case JinjaKind::list:
      case JinjaKind::tuple:
        out += '[';
        for (std::size_t k = 0; k < value.values().size(); ++k) {
          begin_member(k, depth);
          write(value.values()[k], depth + 1);
        }
        if (!value.values().empty()) new_line(depth);
        out += ']';
        return;
      case JinjaKind::dict:
        return write_dict(value.items(), depth);
      default:
        heap_.refuse("a value of type ", kind_name(value), " cannot be written as JSON");
    }
  }

  std::string out;

 private:
  void write_dict(JinjaItems items, int depth) {
    if (style_.sorted)
      std::stable_sort(items.begin(), items.end(), [&](const auto& a, const auto& b) {
        return compare_values(heap_, a.first, b.first) < 0;
      });
    out += '{';
    for (std::size_t k = 0; k < items.size(); ++k) {
      begin_member(k, depth);
      if (!items[k].first.is_string()) heap_.lacks("only texts can be keys in JSON");
      write(items[k].first, depth + 1);
      out += style_.colon;
      write(items[k].second, depth + 1);
    }
    if (!items.empty()) new_line(depth);
    out += '}';
  }
  void begin_member(std::size_t number, int depth) {
    if (number > 0) out += style_.comma;
    new_line(depth + 1);
  }
  void new_line(int depth) {
    if (!style_.pretty) return;
    heap_.spend(style_.indent.size() * static_cast<std::size_t>(depth));
    out += '\n';
    for (int k = 0; k < depth; ++k) out += style_.indent;
  }

  JinjaHeap& heap_;
  const JinjaJson& style_;
};

}  // namespace

std::string to_text(JinjaHeap& heap, const JinjaValue& value) {
  std::string out;
  append_text(heap, out, value, 0);
  return out;
}

std::string to_json(JinjaHeap& heap, const JinjaValue& value, const JinjaJson& style) {
  JsonWriter writer(heap, style);
  writer.write(value, 0);
  return std::move(writer.out);
}

}  // namespace kvatlas::model
