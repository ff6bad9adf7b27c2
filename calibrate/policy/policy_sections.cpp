// SPDX-License-Identifier: Apache-2.0
// Parts as sections of a document, and back.
#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "calibrate/policy/document_impl.hpp"
#include "calibrate/policy/policy_settings.hpp"

namespace kvatlas::calibrate {
namespace {

using nlohmann::json;

class JsonWriter : public Settings {
 public:
  void whole(const char* key, std::int64_t& value, std::int64_t, std::int64_t,
             const char*) override {
    out[key] = value;
  }
  void optional_whole(const char* key, std::optional<std::int64_t>& value, std::int64_t,
                      std::int64_t, const char*) override {
    if (value) out[key] = *value;
  }
  void number(const char* key, double& value, double, double, const char*) override {
    out[key] = value;
  }
  void seed(const char* key, std::uint64_t& value, const char*) override { out[key] = value; }
  void flag(const char* key, bool& value, const char*) override { out[key] = value; }
  void text(const char* key, std::string& value, const char*) override {
    if (!value.empty()) out[key] = value;
  }
  void word(const char* key, std::size_t& index, std::span<const std::string_view> words,
            const char*) override {
    out[key] = words[index];
  }
  json out = json::object();
};

class JsonReader : public Settings {
 public:
  explicit JsonReader(const json& settings) : settings_(settings) {}

  void whole(const char* key, std::int64_t& value, std::int64_t low, std::int64_t high,
             const char*) override {
    const json* found = find(key);
    if (!found) return;
    // An unsigned number beyond int64 would turn negative.
    const bool fits = found->is_number_integer() &&
                      !(found->is_number_unsigned() && found->get<std::uint64_t>() > INT64_MAX);
    if (!fits || found->get<std::int64_t>() < low || found->get<std::int64_t>() > high)
      refuse(key, *found, str("a whole number from ", low, " to ", high));
    value = found->get<std::int64_t>();
  }
  void optional_whole(const char* key, std::optional<std::int64_t>& value, std::int64_t low,
                      std::int64_t high, const char* meaning) override {
    std::int64_t number = -1;
    whole(key, number, low, high, meaning);
    if (number != -1) value = number;
  }
  void number(const char* key, double& value, double low, double high, const char*) override {
    const json* found = find(key);
    if (!found) return;
    // Written so that NaN is refused.
    if (!found->is_number() || !(found->get<double>() >= low && found->get<double>() <= high))
      refuse(key, *found, str("a number from ", low, " to ", high));
    value = found->get<double>();
  }
  void seed(const char* key, std::uint64_t& value, const char*) override {
    const json* found = find(key);
    if (!found) return;
    if (!found->is_number_integer() ||
        (!found->is_number_unsigned() && found->get<std::int64_t>() < 0))
      refuse(key, *found, "a whole number that is not negative");
    value = found->get<std::uint64_t>();
  }
  void flag(const char* key, bool& value, const char*) override {
    const json* found = find(key);
    if (!found) return;
    if (!found->is_boolean()) refuse(key, *found, "true or false");
    value = found->get<bool>();
  }
  void text(const char* key, std::string& value, const char*) override {
    const json* found = find(key);
    if (!found) return;
    if (!found->is_string()) refuse(key, *found, "text");
    value = found->get<std::string>();
  }
  void word(const char* key, std::size_t& index, std::span<const std::string_view> words,
            const char*) override {
    const json* found = find(key);
    if (!found) return;
    const auto place = found->is_string() ? std::find(words.begin(), words.end(),
                                                      found->get_ref<const std::string&>())
                                          : words.end();
    if (place == words.end()) {
      std::string known;
      for (const auto word : words) known += (known.empty() ? "" : " or ") + std::string(word);
      refuse(key, *found, known);
    }
    index = static_cast<std::size_t>(place - words.begin());
  }

  void require_all_known() const {
    for (const auto& [key, value] : settings_.items())
      if (std::find(known_.begin(), known_.end(), key) == known_.end())
        fail(ErrorCode::unreadable, "there is no setting ", quoted(key), "; known are ",
             list_str(known_));
  }

 private:
  const json* find(const char* key) {
    known_.emplace_back(key);
    const auto found = settings_.find(key);
    return found == settings_.end() ? nullptr : &*found;
  }
  [[noreturn]] static void refuse(const char* key, const json& found, const std::string& expected) {
    fail(ErrorCode::unreadable, key, " is ",
         printable(found.dump(-1, ' ', true, json::error_handler_t::replace)), ", expected ",
         expected);
  }

  const json& settings_;
  std::vector<std::string> known_;
};

json lazy_result(const LazyHeads& fixed) {
  const bool whole_layers =
      std::all_of(fixed.begin(), fixed.end(), [](const auto& row) { return row.size() == 1; });
  json rows = json::array();
  for (const auto& row : fixed) {
    json heads = json::array();
    for (const auto lazy : row) heads.push_back(lazy != 0);
    rows.push_back(whole_layers ? heads.at(0) : std::move(heads));
  }
  return {{whole_layers ? "lazy_layers" : "lazy_heads", std::move(rows)}};
}

/// A member of a "result" as a list of T; Error(unreadable) if it is something else.
template <class T>
std::vector<T> list_member(const json& result, const char* key) {
  try {
    return result.at(key).get<std::vector<T>>();
  } catch (const json::exception&) {
    fail(ErrorCode::unreadable, "result.", key, " is not the list that the schema describes");
  }
}

std::optional<LazyHeads> read_lazy(const json& result) {
  if (result.contains("lazy_layers") && result.contains("lazy_heads"))
    fail(ErrorCode::unreadable, "result has 'lazy_layers' and 'lazy_heads', expected one of them");
  LazyHeads fixed;
  if (result.contains("lazy_layers")) {
    for (const bool lazy : list_member<bool>(result, "lazy_layers"))
      fixed.push_back({static_cast<std::uint8_t>(lazy)});
  } else if (result.contains("lazy_heads")) {
    for (const auto& row : list_member<std::vector<bool>>(result, "lazy_heads"))
      fixed.emplace_back(row.begin(), row.end());
  } else {
    return std::nullopt;
  }
  return fixed;
}

struct Result {
  json operator()(const SimLayerKv& part) const {
    return part.fixed ? lazy_result(*part.fixed) : json::object();
  }
  json operator()(const Pod& part) const {
    return part.lowest.empty() ? json::object() : json{{"lowest", part.lowest}};
  }
  json operator()(const DynamicKv& part) const {
    return part.fixed ? json{{"budgets", *part.fixed}} : json::object();
  }
  json operator()(const LagKv& part) const { return {{"kept", part.keep()}}; }
  template <class Other>
  json operator()(const Other&) const {
    return json::object();
  }
};

struct ReadResult {
  const json& result;

  void operator()(SimLayerKv& part) const { part.fixed = read_lazy(result); }
  void operator()(Pod& part) const {
    if (result.contains("lowest"))
      part.lowest = list_member<std::vector<std::int64_t>>(result, "lowest");
  }
  void operator()(DynamicKv& part) const {
    if (result.contains("budgets")) part.fixed = list_member<std::int64_t>(result, "budgets");
  }
  void operator()(const LagKv& part) const {
    if (result.contains("kept") && result.at("kept") != part.keep())
      fail(ErrorCode::unreadable, "result.kept is ", printable(result.at("kept").dump()), ", and ",
           part.ratio, " of ", part.lag, " tokens are ", part.keep());
  }
  template <class Other>
  void operator()(const Other&) const {}
};

const json& object_member(const json& section, const char* key) {
  static const json none = json::object();
  if (!section.is_object()) fail(ErrorCode::unreadable, "expected an object");
  const auto found = section.find(key);
  if (found == section.end()) return none;
  if (!found->is_object()) fail(ErrorCode::unreadable, key, " is no object");
  return *found;
}

/// An imported pattern: trimmed heads, given beforehand.
Part part_of_heads(const json& section) {
  Part streaming = Streaming{};
  JsonReader reader(object_member(section, "settings"));
  visit_settings("streaming", streaming, reader);
  reader.require_all_known();
  SimLayerKv part;
  part.keep = std::get<Streaming>(streaming).keep;
  part.per_head = true;
  part.fixed = read_lazy(object_member(section, "result"));
  if (!part.fixed) fail(ErrorCode::unreadable, "result.lazy_heads is missing");
  return part;
}

/// The name that the settings of a section's part go by.
std::string settings_name(const std::string& section, const json& from) {
  if (section != "baseline") return section;
  const auto name = from.find("name");
  if (name == from.end() || !name->is_string())
    fail(ErrorCode::unreadable, "name is missing, or no text");
  auto text = name->get<std::string>();
  const PartName* known = find_part(text);
  if (!known || section_name(known->standard) != "baseline")
    fail(ErrorCode::unreadable, "name ", quoted(text), " is no baseline's");
  return text;
}

}  // namespace

std::string section_name(const Part& part) {
  if (std::holds_alternative<SimLayerKv>(part)) return "simlayerkv";
  if (std::holds_alternative<Pod>(part)) return "pod";
  if (std::holds_alternative<DynamicKv>(part)) return "dynamickv";
  if (std::holds_alternative<LagKv>(part)) return "lagkv";
  return "baseline";
}

json section_of(const Part& part) {
  const auto section = section_name(part);
  const auto name = section == "baseline" ? name_of(part) : section;
  JsonWriter writer;
  Part copy = part;
  visit_settings(name, copy, writer);
  json out = {{"settings", std::move(writer.out)}, {"result", std::visit(Result{}, part)}};
  if (section == "baseline") out["name"] = name;
  return out;
}

Part part_of(const std::string& section, const json& from) {
  return in_context(section, [&]() -> Part {
    if (std::find(kSections.begin(), kSections.end(), section) == kSections.end())
      fail(ErrorCode::unreadable, "no section of a policy document");
    const auto& settings = object_member(from, "settings");
    if (section == "heads") return part_of_heads(from);
    const auto name = settings_name(section, from);
    Part part = find_part(name)->standard;
    try {
      JsonReader reader(settings);
      in_context("settings", [&] {
        visit_settings(name, part, reader);
        reader.require_all_known();
        check_settings(part);
      });
      std::visit(ReadResult{object_member(from, "result")}, part);
    } catch (const Error& error) {
      // The same checks call it wrong usage where the text is a command line's.
      throw Error(ErrorCode::unreadable, error.what());
    }
    return part;
  });
}

}  // namespace kvatlas::calibrate
