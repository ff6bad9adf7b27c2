// SPDX-License-Identifier: Apache-2.0
// The values of a running template, which behave as Python's.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/str.hpp"

namespace kvatlas::model {

struct JinjaNode;
struct JinjaScope;
class JinjaValue;

using JinjaValues = std::vector<JinjaValue>;
using JinjaItems = std::vector<std::pair<JinjaValue, JinjaValue>>;  // of a dict, in their order

enum class JinjaKind {
  undefined,
  none,
  boolean,
  integer,
  real,
  string,
  list,
  tuple,
  dict,
  stream,      // what `map` and its like give: it can be read once, and counts as true
  attributes,  // a namespace
  function,    // one of the functions that every template can call
  method,      // of a string, a list or a dict, not called yet
  macro,
  loop,
};

struct JinjaStream {
  JinjaValues values;
  std::size_t read = 0;
};

struct JinjaMacro {
  const JinjaNode* node;
  JinjaScope* scope;  // where it stands
};

struct JinjaLoop;

/// A value is copied freely: what it refers to lies in the JinjaHeap of its run, or in the
/// template.
class JinjaValue {
 public:
  JinjaValue() = default;  // undefined
  static JinjaValue undefined(std::string_view name) { return text_of(JinjaKind::undefined, name); }
  static JinjaValue none() { return of(JinjaKind::none); }
  static JinjaValue boolean(bool value) {
    JinjaValue made = of(JinjaKind::boolean);
    made.integer_ = value ? 1 : 0;
    return made;
  }
  static JinjaValue integer(std::int64_t value) {
    JinjaValue made = of(JinjaKind::integer);
    made.integer_ = value;
    return made;
  }
  static JinjaValue real(double value) {
    JinjaValue made = of(JinjaKind::real);
    made.real_ = value;
    return made;
  }
  /// The bytes have to live as long as the value.
  static JinjaValue string(std::string_view text) { return text_of(JinjaKind::string, text); }
  static JinjaValue function(std::string_view name) { return text_of(JinjaKind::function, name); }
  template <class Thing>
  static JinjaValue thing(JinjaKind kind, Thing* thing) {
    JinjaValue made = of(kind);
    made.thing_ = thing;
    return made;
  }

  JinjaKind kind() const { return kind_; }
  bool is(JinjaKind kind) const { return kind_ == kind; }
  bool is_string() const { return kind_ == JinjaKind::string; }
  /// A text that is marked as safe HTML escapes what is added to it, here as in Python.
  bool is_safe() const { return safe_; }
  JinjaValue marked_safe(bool safe) const {
    JinjaValue made = *this;
    made.safe_ = safe;
    return made;
  }
  bool is_whole() const { return kind_ == JinjaKind::integer || kind_ == JinjaKind::boolean; }
  bool is_number() const { return is_whole() || kind_ == JinjaKind::real; }
  bool is_sequence() const { return kind_ == JinjaKind::list || kind_ == JinjaKind::tuple; }

  std::int64_t whole() const { return integer_; }
  double number() const { return kind_ == JinjaKind::real ? real_ : static_cast<double>(integer_); }
  /// Of a string; the name of a function, or of what is undefined.
  std::string_view text() const { return {text_, size_}; }
  const JinjaValues& values() const { return *static_cast<const JinjaValues*>(thing_); }
  const JinjaItems& items() const { return *static_cast<const JinjaItems*>(thing_); }
  template <class Thing>
  Thing& as() const {
    return *static_cast<Thing*>(thing_);
  }
  const void* identity() const { return thing_; }

 private:
  static JinjaValue of(JinjaKind kind) {
    JinjaValue made;
    made.kind_ = kind;
    return made;
  }
  static JinjaValue text_of(JinjaKind kind, std::string_view text) {
    JinjaValue made = of(kind);
    made.text_ = text.data();
    made.size_ = text.size();
    return made;
  }

  JinjaKind kind_ = JinjaKind::undefined;
  bool safe_ = false;
  std::size_t size_ = 0;
  union {
    std::int64_t integer_;
    double real_;
    const char* text_ = "";
    void* thing_;
  };
};

struct JinjaMethod {
  JinjaValue object;
  std::string_view name;
};

/// The variables of a part of a template, inside the scope that the part stands in.
struct JinjaScope {
  JinjaScope* outer = nullptr;
  std::vector<std::pair<std::string_view, JinjaValue>> variables;

  JinjaValue* find(std::string_view name);  // here alone
  void set(std::string_view name, JinjaValue value);
};

struct JinjaLoop {
  const JinjaValues* values;
  std::size_t index = 0;
  std::int64_t level = 0;  // of a recursive loop
  const JinjaNode* node = nullptr;
  JinjaScope* scope = nullptr;
  JinjaValue last_changed;  // what changed() was called with
  bool was_called = false;
};

/// Owns what the values of one run refer to, and counts what the run makes and does: a run that
/// goes beyond its bound ends with an error. `line` is where it is.
class JinjaHeap {
 public:
  explicit JinjaHeap(std::int64_t allowance) : left_(allowance) {}
  JinjaHeap(const JinjaHeap&) = delete;
  JinjaHeap& operator=(const JinjaHeap&) = delete;

  int line = 1;

  /// Counts so many bytes made, or as much work.
  void spend(std::size_t units) {
    if (units > left_units()) give_up();
    left_ -= static_cast<std::int64_t>(units);
  }

  JinjaValue string(std::string text);
  JinjaValue list(JinjaValues values) { return sequence(JinjaKind::list, std::move(values)); }
  JinjaValue tuple(JinjaValues values) { return sequence(JinjaKind::tuple, std::move(values)); }
  JinjaValue dict(JinjaItems items);
  JinjaValue stream(JinjaValues values);
  JinjaValue attributes();
  JinjaValue macro(const JinjaNode* node, JinjaScope* scope);
  JinjaValue method(JinjaValue object, std::string_view name);
  JinjaLoop& loop();
  JinjaScope& scope(JinjaScope* outer);
  JinjaValue json(const nlohmann::ordered_json& value);

  template <class... Parts>
  [[noreturn]] void refuse(const Parts&... parts) const {
    refuse_text(str(parts...));
  }
  template <class... Parts>
  [[noreturn]] void lacks(const Parts&... parts) const {
    lacks_text(str(parts...));
  }

 private:
  std::size_t left_units() const { return static_cast<std::size_t>(left_); }
  [[noreturn]] void give_up() const;
  [[noreturn]] void refuse_text(const std::string& text) const;  // unreadable
  [[noreturn]] void lacks_text(const std::string& text) const;   // unsupported
  JinjaValue sequence(JinjaKind kind, JinjaValues values);

  std::int64_t left_;
  std::deque<std::string> strings_;
  std::deque<JinjaValues> sequences_;
  std::deque<JinjaItems> dicts_;
  std::deque<JinjaStream> streams_;
  std::deque<JinjaScope> scopes_;  // namespaces too
  std::deque<JinjaMacro> macros_;
  std::deque<JinjaMethod> methods_;
  std::deque<JinjaLoop> loops_;
};

// What Python does with values. Errors name the line of the heap.

const char* kind_name(const JinjaValue& value);  // as Python calls the type
bool is_true(const JinjaValue& value);
bool are_equal(JinjaHeap& heap, const JinjaValue& a, const JinjaValue& b, int depth = 0);
/// Negative, zero or positive.
int compare_values(JinjaHeap& heap, const JinjaValue& a, const JinjaValue& b, int depth = 0);
bool holds(JinjaHeap& heap, const JinjaValue& whole, const JinjaValue& part);
const JinjaValue* find_item(JinjaHeap& heap, const JinjaItems& items, const JinjaValue& key);
void set_item(JinjaHeap& heap, JinjaItems& items, const JinjaValue& key, const JinjaValue& value);
/// What a loop over the value gives; a stream is read by it.
JinjaValues iterate(JinjaHeap& heap, const JinjaValue& value);
std::size_t count_characters(std::string_view text);
/// The characters of a text as values.
JinjaValues characters(JinjaHeap& heap, std::string_view text);
/// The bytes before the first `count` characters, or all.
std::size_t bytes_of(std::string_view text, std::size_t count);

std::string to_text(JinjaHeap& heap, const JinjaValue& value);  // str(value)
struct JinjaJson {
  bool ascii = false, sorted = false;
  std::string indent;  // with newlines between members, where `pretty`
  bool pretty = false;
  std::string comma = ", ", colon = ": ";
};
std::string to_json(JinjaHeap& heap, const JinjaValue& value, const JinjaJson& style);
std::string real_text(double value);  // repr()

/// object.name: undefined where there is no such thing.
JinjaValue get_attribute(JinjaHeap& heap, const JinjaValue& object, std::string_view name);
/// object[index]
JinjaValue get_item(JinjaHeap& heap, const JinjaValue& object, const JinjaValue& index);
JinjaValue get_slice(JinjaHeap& heap, const JinjaValue& object, const JinjaValue& start,
                     const JinjaValue& stop, const JinjaValue& step);

}  // namespace kvatlas::model
