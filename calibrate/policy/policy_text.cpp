// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <charconv>
#include <numeric>
#include <sstream>

#include "base/error.hpp"
#include "calibrate/policy/policy.hpp"
#include "calibrate/policy/policy_settings.hpp"

namespace kvatlas::calibrate {
namespace {

constexpr std::size_t kLongestText = 4096;

struct Modifier {
  const char *name, *meaning;
};
constexpr Modifier kModifiers[] = {
    {"kv4", "what is kept is stored in 4 bits"},
    {"kv2", "what is kept is stored in 2 bits"},
    {"rolling", "windows stay at their size while decoding"},
};

std::string number_text(double value) {
  char digits[32];
  const auto end = std::to_chars(std::begin(digits), std::end(digits), value).ptr;
  return {digits, end};
}

template <class Words>
std::string join(const Words& words, const char* separator = ", ") {
  std::string all;
  for (const auto& word : words) {
    if (!all.empty()) all += separator;
    all += word;
  }
  return all;
}

std::vector<std::string> split(std::string_view text, char at) {
  std::vector<std::string> pieces;
  while (true) {
    const auto end = text.find(at);
    pieces.emplace_back(text.substr(0, end));
    if (end == text.npos) return pieces;
    text.remove_prefix(end + 1);
  }
}

/// Letters to change, add or leave out to make one word of the other.
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i + 1;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t above = row[j + 1];
      row[j + 1] = std::min({above + 1, row[j] + 1, diagonal + (a[i] == b[j] ? 0 : 1)});
      diagonal = above;
    }
  }
  return row.back();
}

std::vector<std::string> all_names() {
  std::vector<std::string> names = {"full"};
  for (const auto& part : part_names()) names.push_back(part.name);
  for (const auto& modifier : kModifiers) names.emplace_back(modifier.name);
  return names;
}

[[noreturn]] void fail_unknown_name(const std::string& name) {
  const auto names = all_names();
  std::vector<std::string> near;
  for (const auto& known : names)
    if (!name.empty() && name.size() < 32 &&
        distance(name, known) <= std::max<std::size_t>(1, known.size() / 3))
      near.push_back(known);
  if (near.empty())
    fail(ErrorCode::usage, "there is no policy ", quoted(name), "; known are ", join(names));
  fail(ErrorCode::usage, "there is no policy ", quoted(name), "; did you mean ", join(near, " or "),
       "?");
}

/// Takes the settings from "key=value" pairs.
class TextReader : public Settings {
 public:
  explicit TextReader(std::string_view text) {
    if (text.empty()) return;
    for (const auto& pair : split(text, ',')) {
      const auto equals = pair.find('=');
      if (equals == pair.npos || equals == 0 || equals + 1 == pair.size())
        fail(ErrorCode::usage, quoted(pair), ": expected key=value");
      const auto key = pair.substr(0, equals);
      for (const auto& earlier : given_)
        if (earlier.key == key) fail(ErrorCode::usage, "'", printable(key), "' is given twice");
      given_.push_back({key, pair.substr(equals + 1), false});
    }
  }

  void whole(const char* key, std::int64_t& value, std::int64_t low, std::int64_t high,
             const char*) override {
    if (const auto* text = find(key)) value = ranged<std::int64_t>(key, *text, low, high);
  }
  void optional_whole(const char* key, std::optional<std::int64_t>& value, std::int64_t low,
                      std::int64_t high, const char*) override {
    if (const auto* text = find(key)) value = ranged<std::int64_t>(key, *text, low, high);
  }
  void number(const char* key, double& value, double low, double high, const char*) override {
    if (const auto* text = find(key)) value = ranged<double>(key, *text, low, high);
  }
  void seed(const char* key, std::uint64_t& value, const char*) override {
    if (const auto* text = find(key))
      value = ranged<std::uint64_t>(key, *text, 0, std::numeric_limits<std::uint64_t>::max());
  }
  void flag(const char* key, bool& value, const char* meaning) override {
    auto index = std::size_t{value};
    word(key, index, std::array<std::string_view, 2>{"0", "1"}, meaning);
    value = index == 1;
  }
  void text(const char* key, std::string& value, const char*) override {
    if (const auto* text = find(key)) value = *text;
  }
  void word(const char* key, std::size_t& index, std::span<const std::string_view> words,
            const char*) override {
    const auto* text = find(key);
    if (!text) return;
    const auto found = std::find(words.begin(), words.end(), *text);
    if (found == words.end())
      fail(ErrorCode::usage, key, "=", printable(*text), ": expected ", join(words, " or "));
    index = static_cast<std::size_t>(found - words.begin());
  }

  bool given(const char* key) const {
    return std::any_of(given_.begin(), given_.end(),
                       [&](const Given& pair) { return pair.key == key; });
  }
  void require_all_known() const {
    for (const auto& pair : given_)
      if (!pair.known)
        fail(ErrorCode::usage, "there is no key ", quoted(pair.key), "; known are ", join(keys_));
  }

 private:
  struct Given {
    std::string key, value;
    bool known;
  };

  const std::string* find(const char* key) {
    keys_.emplace_back(key);
    for (auto& pair : given_)
      if (pair.key == key) {
        pair.known = true;
        return &pair.value;
      }
    return nullptr;
  }

  template <class T>
  static T ranged(const char* key, const std::string& text, T low, T high) {
    T value{};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    const bool read = error == std::errc() && end == text.data() + text.size();
    // Written so that NaN is refused.
    if (!read || !(value >= low && value <= high))
      fail(ErrorCode::usage, key, "=", printable(text), ": expected a ",
           std::is_integral_v<T> ? "whole number" : "number", " from ", low, " to ", high);
    return value;
  }

  std::vector<Given> given_;
  std::vector<std::string> keys_;
};

/// What the settings are, for help and for text.
struct Listed {
  std::string key, value, range, meaning;
};
class Lister : public Settings {
 public:
  void whole(const char* key, std::int64_t& value, std::int64_t low, std::int64_t high,
             const char* meaning) override {
    list.push_back({key, str(value), str(low, " to ", high), meaning});
  }
  void optional_whole(const char* key, std::optional<std::int64_t>& value, std::int64_t low,
                      std::int64_t high, const char* meaning) override {
    list.push_back({key, value ? str(*value) : "", str(low, " to ", high), meaning});
  }
  void number(const char* key, double& value, double low, double high,
              const char* meaning) override {
    list.push_back({key, number_text(value), str(low, " to ", high), meaning});
  }
  void seed(const char* key, std::uint64_t& value, const char* meaning) override {
    list.push_back({key, str(value), "whole number", meaning});
  }
  void flag(const char* key, bool& value, const char* meaning) override {
    list.push_back({key, value ? "1" : "0", "0 or 1", meaning});
  }
  void text(const char* key, std::string& value, const char* meaning) override {
    list.push_back({key, value, "", meaning});
  }
  void word(const char* key, std::size_t& index, std::span<const std::string_view> words,
            const char* meaning) override {
    list.push_back({key, std::string(words[index]), join(words, " or "), meaning});
  }
  std::vector<Listed> list;
};

std::vector<Listed> settings_list(std::string_view name, Part part) {
  Lister lister;
  visit_settings(name, part, lister);
  return lister.list;
}

Part parse_part(const std::string& text) {
  const auto colon = text.find(':');
  const auto name = text.substr(0, colon);
  const PartName* known = find_part(name);
  if (!known) fail_unknown_name(name);
  return in_context(name, [&] {
    if (colon == text.size() - 1) fail(ErrorCode::usage, "expected key=value behind the colon");
    TextReader reader(colon == text.npos ? std::string_view{}
                                         : std::string_view(text).substr(colon + 1));
    Part part = known->standard;
    visit_settings(name, part, reader);
    reader.require_all_known();
    if (reader.given("layers") && reader.given("threshold"))
      fail(ErrorCode::usage, "give 'threshold' or 'layers', not both");
    check_settings(part);
    return part;
  });
}

std::string part_text(Part part) {
  // Where the number of layers is given, the threshold is not used, and may not be written beside.
  if (auto* baseline = std::get_if<LayerBaseline>(&part); baseline && baseline->layers)
    baseline->threshold = LayerBaseline{}.threshold;
  const auto name = name_of(part);
  const auto listed = settings_list(name, part);
  const auto standard = settings_list(name, find_part(name)->standard);
  std::vector<std::string> pairs;
  for (std::size_t i = 0; i < listed.size(); ++i)
    if (listed[i].value != standard[i].value)
      pairs.push_back(listed[i].key + "=" + listed[i].value);
  return pairs.empty() ? name : name + ":" + join(pairs, ",");
}

/// What a part does to the cache; of each kind a policy has one at most, in this order.
enum class Kind : std::uint8_t { trims, selects, shares, merges };
constexpr const char* kKindText[] = {"trim layers", "select tokens", "share keys", "merge layers"};

Kind kind_of(const Part& part) {
  if (std::holds_alternative<SimLayerKv>(part) || std::holds_alternative<LayerBaseline>(part))
    return Kind::trims;
  if (std::holds_alternative<Pod>(part)) return Kind::shares;
  if (std::holds_alternative<MiniCache>(part)) return Kind::merges;
  return Kind::selects;
}

bool has_window(const Part& part) {
  return kind_of(part) == Kind::trims || std::holds_alternative<Streaming>(part);
}

void set_modifier(Policy& policy, const std::string& name) {
  const auto refuse_second = [&](bool is_second) {
    if (is_second) fail(ErrorCode::usage, "'", name, "' comes on top of another of its kind");
  };
  if (name == "rolling") {
    refuse_second(policy.rolling);
    policy.rolling = true;
  } else {
    refuse_second(policy.kv_bits != 16);
    policy.kv_bits = name == "kv4" ? 4 : 2;
  }
}

}  // namespace

Policy parse_policy(std::string_view text) {
  if (text.size() > kLongestText)
    fail(ErrorCode::usage, "a policy of ", text.size(), " characters; at most ", kLongestText,
         " are read");
  return in_context("policy " + quoted(text), [&] {
    Policy policy;
    policy.name = text;
    bool full = false;
    for (const auto& piece : split(text, '+')) {
      if (std::any_of(std::begin(kModifiers), std::end(kModifiers),
                      [&](const Modifier& modifier) { return piece == modifier.name; }))
        set_modifier(policy, piece);
      else if (piece == "full" && !full)
        full = true;
      else
        policy.parts.push_back(parse_part(piece));
    }
    if (full && !policy.parts.empty())
      fail(ErrorCode::usage, "'full' keeps the whole cache, and '", name_of(policy.parts[0]),
           "' does not");
    order_parts(policy.parts);
    check_composition(policy);
    return policy;
  });
}

void order_parts(std::vector<Part>& parts) {
  std::stable_sort(parts.begin(), parts.end(),
                   [](const Part& a, const Part& b) { return kind_of(a) < kind_of(b); });
}

std::string policy_text(const Policy& policy) {
  std::vector<std::string> pieces;
  for (const auto& part : policy.parts) pieces.push_back(part_text(part));
  if (pieces.empty()) pieces.emplace_back("full");
  if (policy.kv_bits != 16) pieces.push_back(str("kv", policy.kv_bits));
  if (policy.rolling) pieces.emplace_back("rolling");
  return join(pieces, "+");
}

void check_composition(const Policy& policy) {
  for (std::size_t i = 0; i < policy.parts.size(); ++i)
    for (std::size_t j = i + 1; j < policy.parts.size(); ++j) {
      const Part &a = policy.parts[i], &b = policy.parts[j];
      const auto first = name_of(a), second = name_of(b);
      if (kind_of(a) == kind_of(b))
        fail(ErrorCode::usage, "'", first, "' and '", second, "' both ",
             kKindText[static_cast<std::size_t>(kind_of(a))], ": a policy has one such part");
      if (kind_of(a) == Kind::merges || kind_of(b) == Kind::merges)
        fail(ErrorCode::usage, "'", first, "' and '", second,
             "': minicache merges layers that hold the same tokens with keys of their own, so it "
             "stands alone");
    }
  const bool has_quest =
      std::any_of(policy.parts.begin(), policy.parts.end(),
                  [](const Part& part) { return std::holds_alternative<Quest>(part); });
  if (has_quest && (policy.parts.size() > 1 || policy.kv_bits != 16))
    fail(ErrorCode::usage, "'", policy_text(policy),
         "': quest chooses pages of the whole cache anew at each step, so it stands alone");
  if (policy.kv_bits != 16 && policy.kv_bits != 4 && policy.kv_bits != 2)
    fail(ErrorCode::usage, "keys and values of ", policy.kv_bits, " bits: expected 16, 4 or 2");
  if ((policy.rolling || policy.masks_prefill) &&
      std::none_of(policy.parts.begin(), policy.parts.end(), has_window))
    fail(ErrorCode::usage, "'", policy.rolling ? "rolling" : "a masked prefill",
         "' is said of windows, and no part of '", policy_text(policy), "' has one");
}

std::string policy_help() {
  std::ostringstream out;
  out << "full\n    the whole cache\n";
  for (const auto& [name, meaning, standard] : part_names()) {
    out << name << "\n    " << meaning << '\n';
    for (const auto& [key, value, range, about] : settings_list(name, standard)) {
      out << "      " << key << (value.empty() ? "" : "=" + value) << "  " << about;
      out << (range.empty() ? "" : " (" + range + ")") << '\n';
    }
  }
  for (const auto& [name, meaning] : kModifiers) out << '+' << name << "\n    " << meaning << '\n';
  out << "Composed with '+': one part that trims layers (simlayerkv, pyramid-layers, "
         "random-layers),\none that selects tokens in the layers that stay full, and pod.\n";
  return out.str();
}

}  // namespace kvatlas::calibrate
