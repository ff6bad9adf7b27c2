// SPDX-License-Identifier: Apache-2.0
// Methods of strings, lists, dicts and loops, and the functions that every template can call.
#include <algorithm>
#include <array>
#include <cstring>
#include <ctime>
#include <iomanip>
#include <locale>
#include <span>
#include <sstream>
#include <utf8proc.h>

#include "analyzer/jinja/chat.hpp"
#include "analyzer/jinja/jinja_methods_impl.hpp"
#include "base/unicode_text.hpp"

namespace kvatlas::model {

namespace {

constexpr std::size_t kNowhere = std::string_view::npos;

/// Python's isspace() knows four more than Unicode's White_Space.
bool is_blank(char32_t code) { return is_space(code) || (code >= 0x1c && code <= 0x1f); }

char32_t upper(char32_t code) {
  return static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(code)));
}
char32_t lower(char32_t code) {
  return static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(code)));
}
bool is_letter(char32_t code) {
  const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(code));
  return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
}

/// The text with each character as `change` makes it of the character and of the one before it.
template <class Change>
std::string changed(JinjaHeap& heap, std::string_view text, Change change) {
  heap.spend(text.size());
  std::string out;
  out.reserve(text.size());
  char32_t before = 0;
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Char c = read_utf8(text, at);
    append_utf8(out, change(c.code, before));
    before = c.code;
    at += c.length;
  }
  return out;
}

template <class Is>
bool all_characters(JinjaHeap& heap, std::string_view text, Is is) {
  heap.spend(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Char c = read_utf8(text, at);
    if (!is(c.code)) return false;
    at += c.length;
  }
  return !text.empty();
}

std::string_view need_text(JinjaHeap& heap, std::string_view callee, const JinjaValue& value) {
  if (!value.is_string())
    heap.refuse(
        callee, " needs a text",
        value.is(JinjaKind::undefined) ? "" : str(", not a value of type ", kind_name(value)));
  return value.text();
}
std::int64_t whole_or(JinjaHeap& heap, std::string_view callee, const JinjaValue& value,
                      std::int64_t fallback) {
  if (value.is(JinjaKind::undefined)) return fallback;
  if (!value.is_whole()) heap.refuse(callee, " needs a whole number");
  return value.whole();
}

std::size_t find_last(JinjaHeap& heap, std::string_view text, std::string_view part) {
  heap.spend(text.size() / 8 + part.size() / 8 + 1);
  if (part.size() > text.size()) return kNowhere;
  // Parts of texts are short; what a long one could cost is counted.
  for (std::size_t at = text.size() - part.size() + 1; at-- > 0;) {
    if (part.empty() || text[at] == part[0]) {
      heap.spend(part.size() / 64);
      if (text.compare(at, part.size(), part) == 0) return at;
    }
  }
  return kNowhere;
}

/// split() and rsplit() without a separator: at runs of spaces.
JinjaValues split_at_spaces(JinjaHeap& heap, std::string_view text, std::int64_t most,
                            bool from_right) {
  heap.spend(text.size() + 1);
  std::vector<std::pair<std::size_t, std::size_t>> words;
  bool inside = false;
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Char c = read_utf8(text, at);
    const bool blank = is_blank(c.code);
    if (!blank && !inside) words.emplace_back(at, at);
    if (!blank) words.back().second = at + c.length;
    inside = !blank;
    at += c.length;
  }
  // What is beyond `most` splits stays whole, with the spaces at its far end.
  const std::size_t splits =
      most < 0 ? words.size() : std::min(words.size(), static_cast<std::size_t>(most));
  const std::size_t joined = words.size() - splits;
  if (joined > 0 && from_right) {
    words.erase(words.begin(), words.begin() + static_cast<std::ptrdiff_t>(joined) - 1);
    words.front().first = 0;
  } else if (joined > 0) {
    words.resize(splits + 1);
    words.back().second = text.size();
  }
  JinjaValues parts;
  for (const auto& [begin, end] : words)
    parts.push_back(JinjaValue::string(text.substr(begin, end - begin)));
  return parts;
}

JinjaValues split_text(JinjaHeap& heap, std::string_view callee, std::string_view text,
                       const JinjaValues& given, bool from_right) {
  const std::int64_t most = whole_or(heap, callee, given[1], -1);
  if (given[0].is(JinjaKind::undefined) || given[0].is(JinjaKind::none))
    return split_at_spaces(heap, text, most, from_right);
  const std::string_view separator = need_text(heap, callee, given[0]);
  if (separator.empty()) heap.refuse(callee, " needs a separator");
  JinjaValues parts;
  while (most < 0 || static_cast<std::int64_t>(parts.size()) < most) {
    const std::size_t found =
        from_right ? find_last(heap, text, separator) : find_bytes(heap, text, separator, 0);
    if (found == kNowhere) break;
    heap.spend(sizeof(JinjaValue));
    const std::size_t behind = found + separator.size();
    parts.push_back(JinjaValue::string(from_right ? text.substr(behind) : text.substr(0, found)));
    text = from_right ? text.substr(0, found) : text.substr(behind);
  }
  parts.push_back(JinjaValue::string(text));
  if (from_right) std::reverse(parts.begin(), parts.end());
  return parts;
}

/// Whether the text begins (or ends) with a text, or with one of a tuple of them.
bool has_end(JinjaHeap& heap, std::string_view callee, std::string_view text, const JinjaValue& end,
             bool at_start) {
  if (end.is(JinjaKind::tuple))
    return std::any_of(end.values().begin(), end.values().end(), [&](const JinjaValue& one) {
      return has_end(heap, callee, text, one, at_start);
    });
  const std::string_view part = need_text(heap, callee, end);
  heap.spend(part.size() / 8 + 1);
  return at_start ? text.starts_with(part) : text.ends_with(part);
}

/// text.format(…) with {}, {0} and {name}.
JinjaValue format_fields(JinjaHeap& heap, std::string_view text, const JinjaArguments& arguments) {
  std::string out;
  std::size_t next = 0;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    const bool doubled = at + 1 < text.size() && text[at + 1] == c;
    if ((c == '{' || c == '}') && doubled) {
      out += c;
      ++at;
    } else if (c == '}') {
      heap.refuse("a '}' stands alone in the text that format() fills");
    } else if (c == '{') {
      const std::size_t end = text.find('}', at);
      if (end == kNowhere) heap.refuse("a '{' stands alone in the text that format() fills");
      const std::string_view field = text.substr(at + 1, end - at - 1);
      const bool is_number = field.find_first_not_of("0123456789") == kNowhere && field.size() < 6;
      JinjaValue value;
      if (is_number) {
        std::size_t number = next++;
        if (!field.empty()) number = static_cast<std::size_t>(std::stoi(std::string(field)));
        if (number >= arguments.values.size()) heap.refuse("format() lacks an argument");
        value = arguments.values[number];
      } else {
        const auto named = std::find_if(arguments.named.begin(), arguments.named.end(),
                                        [&](const auto& one) { return one.first == field; });
        if (named == arguments.named.end())
          heap.lacks("the field {", field, "} of format() is not supported");
        value = named->second;
      }
      out += to_text(heap, value);
      at = end;
    } else {
      out += c;
    }
    heap.spend(1);
  }
  return heap.string(std::move(out));
}

JinjaValue call_of_text(JinjaHeap& heap, std::string_view text, std::string_view name,
                        const JinjaArguments& arguments) {
  const std::string callee = str(name, "()");
  const auto match = [&](std::initializer_list<std::string_view> names) {
    return arguments.match(heap, callee, names);
  };
  const auto view = [](std::string_view part) { return JinjaValue::string(part); };
  if (name == "strip" || name == "lstrip" || name == "rstrip")
    return view(strip_text(heap, text, match({"chars"})[0], name != "rstrip", name != "lstrip"));
  if (name == "split" || name == "rsplit")
    return heap.list(split_text(heap, callee, text, match({"sep", "maxsplit"}), name == "rsplit"));
  if (name == "splitlines")
    return heap.list(text_lines(heap, text, is_true(match({"keepends"})[0])));
  if (name == "startswith" || name == "endswith")
    return JinjaValue::boolean(
        has_end(heap, callee, text, match({"prefix"})[0], name == "startswith"));
  if (name == "removeprefix" || name == "removesuffix") {
    const bool at_start = name == "removeprefix";
    const std::string_view part = need_text(heap, callee, match({"part"})[0]);
    if (!(at_start ? text.starts_with(part) : text.ends_with(part))) return view(text);
    return view(text.substr(at_start ? part.size() : 0, text.size() - part.size()));
  }
  if (name == "upper" || name == "lower" || name == "capitalize" || name == "title") {
    match({});
    if (name == "upper") return heap.string(upper_text(heap, text));
    if (name == "lower") return heap.string(lower_text(heap, text));
    if (name == "capitalize") return heap.string(capitalized(heap, text));
    return heap.string(changed(heap, text, [](char32_t code, char32_t before) {
      return is_letter(before) ? lower(code) : upper(code);
    }));
  }
  if (name == "replace") {
    const auto given = match({"old", "new", "count"});
    return replace_text(heap, text, need_text(heap, callee, given[0]),
                        need_text(heap, callee, given[1]), given[2]);
  }
  if (name == "find" || name == "rfind" || name == "index" || name == "rindex") {
    const std::string_view part = need_text(heap, callee, match({"sub"})[0]);
    const std::size_t found =
        name[0] == 'r' ? find_last(heap, text, part) : find_bytes(heap, text, part, 0);
    if (found == kNowhere && name.ends_with("index")) heap.refuse(callee, " finds nothing");
    heap.spend(text.size() / 8);
    return JinjaValue::integer(
        found == kNowhere ? -1
                          : static_cast<std::int64_t>(count_characters(text.substr(0, found))));
  }
  if (name == "count") {
    const std::string_view part = need_text(heap, callee, match({"sub"})[0]);
    if (part.empty())
      return JinjaValue::integer(static_cast<std::int64_t>(count_characters(text)) + 1);
    std::int64_t count = 0;
    for (std::size_t at = find_bytes(heap, text, part, 0); at != kNowhere;
         at = find_bytes(heap, text, part, at + part.size()))
      ++count;
    return JinjaValue::integer(count);
  }
  if (name == "join") {
    std::string out;
    bool first = true;
    for (const JinjaValue& part : iterate(heap, match({"iterable"})[0])) {
      if (!first) out += text;
      first = false;
      out += need_text(heap, callee, part);
      heap.spend(text.size() + part.text().size());
    }
    return heap.string(std::move(out));
  }
  if (name == "format") return format_fields(heap, text, arguments);
  if (name == "isspace") return JinjaValue::boolean(all_characters(heap, text, is_blank));
  if (name == "isalpha") return JinjaValue::boolean(all_characters(heap, text, is_letter));
  if (name == "isdigit" || name == "isdecimal")
    return JinjaValue::boolean(all_characters(heap, text, [](char32_t code) {
      return utf8proc_category(static_cast<utf8proc_int32_t>(code)) == UTF8PROC_CATEGORY_ND;
    }));
  heap.lacks("the method ", name, "() of a text is not supported");
}

JinjaValue call_of_dict(JinjaHeap& heap, const JinjaItems& items, std::string_view name,
                        const JinjaArguments& arguments) {
  const std::string callee = str(name, "()");
  if (name == "get") {
    const auto given = arguments.match(heap, callee, {"key", "default"});
    const JinjaValue* found = find_item(heap, items, given[0]);
    if (found != nullptr) return *found;
    return arguments.values.size() > 1 ? arguments.values[1] : JinjaValue::none();
  }
  if (name == "items" || name == "keys" || name == "values" || name == "copy") {
    arguments.match(heap, callee, {});
    if (name == "copy") return heap.dict(items);
    JinjaValues all;
    for (const auto& [key, value] : items)
      all.push_back(name == "keys" ? key : name == "values" ? value : heap.tuple({key, value}));
    return heap.list(std::move(all));
  }
  heap.refuse(callee, " would change a dict, which a template may not");
}

JinjaValue call_of_list(JinjaHeap& heap, const JinjaValues& values, std::string_view name,
                        const JinjaArguments& arguments) {
  const std::string callee = str(name, "()");
  if (name == "index" || name == "count") {
    const JinjaValue wanted = arguments.match(heap, callee, {"value"})[0];
    std::int64_t count = 0;
    for (std::size_t k = 0; k < values.size(); ++k) {
      if (!are_equal(heap, values[k], wanted)) continue;
      if (name == "index") return JinjaValue::integer(static_cast<std::int64_t>(k));
      ++count;
    }
    if (name == "index") heap.refuse(callee, " finds nothing");
    return JinjaValue::integer(count);
  }
  if (name == "copy") return heap.list(values);
  heap.refuse(callee, " would change a list, which a template may not");
}

JinjaValue call_of_loop(JinjaHeap& heap, JinjaLoop& loop, std::string_view name,
                        const JinjaArguments& arguments) {
  if (name == "cycle") {
    if (arguments.values.empty()) heap.refuse("loop.cycle() needs values");
    return arguments.values[loop.index % arguments.values.size()];
  }
  const JinjaValue now = heap.tuple(arguments.values);
  const bool same = loop.was_called && are_equal(heap, loop.last_changed, now);
  loop.last_changed = now;
  loop.was_called = true;
  return JinjaValue::boolean(!same);
}

/// kTemplateDate at midnight, written as strftime() of C does.
JinjaValue date_text(JinjaHeap& heap, std::string_view format) {
  if (format.size() > 200) heap.refuse("the format of strftime_now() is too long");
  std::tm date{};
  std::istringstream(kTemplateDate) >> std::get_time(&date, "%Y-%m-%d");
  const std::time_t seconds = timegm(&date);
  gmtime_r(&seconds, &date);
  // glibc's "%-d", a number without zeros before it, is the one extension that templates use.
  std::ostringstream out;
  out.imbue(std::locale::classic());
  for (std::size_t at = 0; at < format.size(); ++at) {
    if (format[at] != '%' || at + 1 == format.size()) {
      out << format[at];
      continue;
    }
    const bool bare = format[++at] == '-' && at + 1 < format.size();
    if (bare) ++at;
    if (std::string_view("aAbBcdDeFHIjmMpSTuUwWxXyYZz%").find(format[at]) == kNowhere)
      heap.lacks("'%", format.substr(at, 1), "' in strftime_now() is not supported");
    if (format[at] == 'z' || format[at] == 'Z') continue;  // the date has no zone
    const char pattern[] = {'%', format[at], '\0'};
    std::ostringstream field;
    field.imbue(std::locale::classic());
    field << std::put_time(&date, pattern);
    const std::string text = field.str();
    const std::size_t digits = bare ? text.find_first_not_of('0') : 0;
    out << (digits == kNowhere ? "0" : text.substr(digits));
  }
  return heap.string(out.str());
}

JinjaValue range(JinjaHeap& heap, const JinjaArguments& arguments) {
  const auto given = arguments.match(heap, "range()", {"start", "stop", "step"});
  const bool one = given[1].is(JinjaKind::undefined);
  const std::int64_t start = one ? 0 : whole_or(heap, "range()", given[0], 0);
  const std::int64_t stop = whole_or(heap, "range()", one ? given[0] : given[1], 0);
  const std::int64_t step = whole_or(heap, "range()", given[2], 1);
  if (step == 0) heap.refuse("the step of range() cannot be 0");
  JinjaValues values;
  constexpr std::size_t kMost = 100'000;  // the bound of Jinja's sandbox
  for (std::int64_t at = start; step > 0 ? at < stop : at > stop;) {
    if (values.size() == kMost) heap.refuse("range() gives more than ", kMost, " numbers");
    values.push_back(JinjaValue::integer(at));
    if (__builtin_add_overflow(at, step, &at)) break;
  }
  return heap.list(std::move(values));
}

}  // namespace

JinjaValues JinjaArguments::match(JinjaHeap& heap, std::string_view callee,
                                  std::initializer_list<std::string_view> names) const {
  if (values.size() > names.size())
    heap.refuse(callee, " takes at most ", names.size(), " arguments");
  JinjaValues matched(names.size());
  std::copy(values.begin(), values.end(), matched.begin());
  for (const auto& [name, value] : named) {
    const auto* found = std::find(names.begin(), names.end(), name);
    if (found == names.end()) heap.lacks(callee, " has no argument ", quoted(name));
    matched[static_cast<std::size_t>(found - names.begin())] = value;
  }
  return matched;
}

std::size_t find_bytes(JinjaHeap& heap, std::string_view text, std::string_view part,
                       std::size_t at) {
  if (at > text.size()) return kNowhere;
  // memmem takes linear time, whatever the texts are.
  const void* found = part.empty()
                          ? text.data() + at
                          : memmem(text.data() + at, text.size() - at, part.data(), part.size());
  const std::size_t place =
      found == nullptr ? kNowhere
                       : static_cast<std::size_t>(static_cast<const char*>(found) - text.data());
  heap.spend(((found == nullptr ? text.size() : place) - at + part.size()) / 8 + 1);
  return place;
}

std::string_view strip_text(JinjaHeap& heap, std::string_view text, const JinjaValue& characters,
                            bool left, bool right) {
  const bool blanks = characters.is(JinjaKind::undefined) || characters.is(JinjaKind::none);
  const std::string_view chosen = blanks ? "" : need_text(heap, "strip()", characters);
  heap.spend(text.size() / 8 + 1);
  const auto goes = [&](std::size_t at, std::size_t length) {
    if (blanks) return is_blank(read_utf8(text, at).code);
    heap.spend(chosen.size() / 8 + 1);
    for (std::size_t k = 0; k < chosen.size(); k += read_utf8(chosen, k).length)
      if (chosen.substr(k, read_utf8(chosen, k).length) == text.substr(at, length)) return true;
    return false;
  };
  std::size_t begin = 0, end = text.size();
  while (left && begin < end) {
    const std::size_t length = read_utf8(text, begin).length;
    if (!goes(begin, length)) break;
    begin += length;
  }
  while (right && end > begin) {
    std::size_t last = end - 1;  // where the last character begins
    while (last > begin && end - last < 4 &&
           (static_cast<unsigned char>(text[last]) & 0xc0) == 0x80)
      --last;
    if (last + read_utf8(text, last).length != end) last = end - 1;  // no UTF-8
    if (!goes(last, end - last)) break;
    end = last;
  }
  return text.substr(begin, end - begin);
}

JinjaValue replace_text(JinjaHeap& heap, std::string_view text, std::string_view from,
                        std::string_view to, const JinjaValue& most) {
  std::int64_t left = whole_or(heap, "replace()", most, -1);
  std::string out;
  std::size_t at = 0;
  while (left != 0) {
    const std::size_t found = find_bytes(heap, text, from, at);
    if (found == kNowhere) break;
    heap.spend(found - at + to.size());
    out += text.substr(at, found - at);
    out += to;
    at = found + from.size();
    if (left > 0) --left;
    if (!from.empty()) continue;
    // Nothing is found before each character and at the end.
    if (at >= text.size()) return heap.string(std::move(out));
    const std::size_t length = read_utf8(text, at).length;
    out += text.substr(at, length);
    at += length;
  }
  if (at == 0) return JinjaValue::string(text);
  out += text.substr(at);
  return heap.string(std::move(out));
}

std::string upper_text(JinjaHeap& heap, std::string_view text) {
  return changed(heap, text, [](char32_t code, char32_t) { return upper(code); });
}
std::string lower_text(JinjaHeap& heap, std::string_view text) {
  return changed(heap, text, [](char32_t code, char32_t) { return lower(code); });
}
std::string capitalized(JinjaHeap& heap, std::string_view text) {
  return changed(heap, text, [first = true](char32_t code, char32_t) mutable {
    return std::exchange(first, false) ? upper(code) : lower(code);
  });
}

std::string escaped_text(std::string_view text) {
  constexpr std::string_view kMarks = "&<>'\"";
  constexpr const char* kWords[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
  std::string out;
  for (const char c : text) {
    const std::size_t place = kMarks.find(c);
    if (place == kNowhere) {
      out += c;
    } else {
      out += kWords[place];
    }
  }
  return out;
}

JinjaValues text_lines(JinjaHeap& heap, std::string_view text, bool with_ends) {
  heap.spend(text.size() + 1);
  const auto ends_line = [](char32_t c) {
    return (c >= '\n' && c <= '\r') || (c >= 0x1c && c <= 0x1e) || c == 0x85 || c == 0x2028 ||
           c == 0x2029;
  };
  JinjaValues lines;
  std::size_t begin = 0;
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Char c = read_utf8(text, at);
    const std::size_t end = at;
    at += c.length;
    if (!ends_line(c.code)) continue;
    if (c.code == '\r' && at < text.size() && text[at] == '\n') ++at;
    heap.spend(sizeof(JinjaValue));
    lines.push_back(JinjaValue::string(text.substr(begin, (with_ends ? at : end) - begin)));
    begin = at;
  }
  if (begin < text.size()) lines.push_back(JinjaValue::string(text.substr(begin)));
  return lines;
}

bool is_method(JinjaKind kind, std::string_view name) {
  // As of Python 3.12. What is no text can be changed by some of them, which is then refused.
  constexpr std::array<std::string_view, 47> kOfText = {
      "capitalize",   "casefold",    "center",    "count",      "encode",       "endswith",
      "expandtabs",   "find",        "format",    "format_map", "index",        "isalnum",
      "isalpha",      "isascii",     "isdecimal", "isdigit",    "isidentifier", "islower",
      "isnumeric",    "isprintable", "isspace",   "istitle",    "isupper",      "join",
      "ljust",        "lower",       "lstrip",    "maketrans",  "partition",    "removeprefix",
      "removesuffix", "replace",     "rfind",     "rindex",     "rjust",        "rpartition",
      "rsplit",       "rstrip",      "split",     "splitlines", "startswith",   "strip",
      "swapcase",     "title",       "translate", "upper",      "zfill"};
  constexpr std::array<std::string_view, 11> kOfDict = {
      "clear", "copy",    "fromkeys",   "get",    "items", "keys",
      "pop",   "popitem", "setdefault", "update", "values"};
  constexpr std::array<std::string_view, 11> kOfList = {"append", "clear",   "copy",   "count",
                                                        "extend", "index",   "insert", "pop",
                                                        "remove", "reverse", "sort"};
  std::span<const std::string_view> names;
  if (kind == JinjaKind::string) names = kOfText;
  if (kind == JinjaKind::dict) names = kOfDict;
  if (kind == JinjaKind::list) names = kOfList;
  return std::find(names.begin(), names.end(), name) != names.end();
}

JinjaValue call_method(JinjaHeap& heap, const JinjaMethod& method,
                       const JinjaArguments& arguments) {
  const JinjaValue& object = method.object;
  switch (object.kind()) {
    case JinjaKind::string:
      return call_of_text(heap, object.text(), method.name, arguments);
    case JinjaKind::dict:
      return call_of_dict(heap, object.items(), method.name, arguments);
    case JinjaKind::loop:
      return call_of_loop(heap, object.as<JinjaLoop>(), method.name, arguments);
    default:
      return call_of_list(heap, object.values(), method.name, arguments);
  }
}

JinjaValue loop_attribute(JinjaHeap& heap, JinjaLoop& loop, std::string_view name) {
  const auto index = static_cast<std::int64_t>(loop.index);
  const auto length = static_cast<std::int64_t>(loop.values->size());
  if (name == "index") return JinjaValue::integer(index + 1);
  if (name == "index0") return JinjaValue::integer(index);
  if (name == "revindex") return JinjaValue::integer(length - index);
  if (name == "revindex0") return JinjaValue::integer(length - index - 1);
  if (name == "first") return JinjaValue::boolean(index == 0);
  if (name == "last") return JinjaValue::boolean(index + 1 == length);
  if (name == "length") return JinjaValue::integer(length);
  if (name == "depth") return JinjaValue::integer(loop.level + 1);
  if (name == "depth0") return JinjaValue::integer(loop.level);
  if (name == "previtem" && index > 0) return (*loop.values)[loop.index - 1];
  if (name == "nextitem" && index + 1 < length) return (*loop.values)[loop.index + 1];
  if (name == "cycle" || name == "changed")
    return heap.method(JinjaValue::thing(JinjaKind::loop, &loop), name);
  return JinjaValue::undefined(name);
}

bool is_function(std::string_view name) {
  constexpr std::array<std::string_view, 5> kNames = {"range", "dict", "namespace",
                                                      "raise_exception", "strftime_now"};
  return std::find(kNames.begin(), kNames.end(), name) != kNames.end();
}

JinjaValue call_function(JinjaHeap& heap, std::string_view name, const JinjaArguments& arguments) {
  const std::string callee = str(name, "()");
  if (name == "range") return range(heap, arguments);
  if (name == "raise_exception")
    heap.refuse("the template refuses the conversation: ",
                to_text(heap, arguments.match(heap, callee, {"message"})[0]));
  if (name == "strftime_now")
    return date_text(heap, need_text(heap, callee, arguments.match(heap, callee, {"format"})[0]));
  // dict() and namespace() take a dict, and named values.
  JinjaItems items;
  if (!arguments.values.empty()) {
    if (arguments.values.size() > 1 || !arguments.values[0].is(JinjaKind::dict))
      heap.lacks(callee, " takes a dict or named values");
    items = arguments.values[0].items();
  }
  for (const auto& [key, value] : arguments.named)
    set_item(heap, items, JinjaValue::string(key), value);
  if (name == "dict") return heap.dict(std::move(items));
  const JinjaValue made = heap.attributes();
  for (const auto& [key, value] : items) {
    if (!key.is_string()) heap.refuse("the names of a namespace are texts");
    heap.spend(sizeof(items[0]));
    made.as<JinjaScope>().set(key.text(), value);
  }
  return made;
}

}  // namespace kvatlas::model
