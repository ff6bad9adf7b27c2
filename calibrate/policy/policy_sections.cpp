// SPDX-License-Identifier: Apache-2.0
// Writes parts as sections of a document, and reads them back.
#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "base/json_text.hpp"
#include "calibrate/policy/document_impl.hpp"
#include "calibrate/policy/method.hpp"
#include "calibrate/policy/policy_settings.hpp"

namespace kvatlas::calibrate {
namespace {

using nlohmann::json;

json write_settings(const PartName& known, const Part& part) {
  json out = json::object();
  for (const auto& setting : known.settings)
    if (auto value = setting.get(part); !value_text(value).empty())
      out[setting.key] = std::move(value);
  return out;
}

void read_settings(const PartName& known, const json& from, Part& part) {
  for (const auto& [key, meaning, allowed, get, set] : known.settings) {
    const auto found = from.find(key);
    if (found == from.end()) continue;
    if (!is_allowed(allowed, *found))
      fail(ErrorCode::unreadable, key, " is ", printable(json_text(*found, -1, true)),
           ", expected ", expected_text(allowed));
    set(part, *found);
  }
  for (const auto& [key, value] : from.items())
    if (const auto lack = lack_of_setting(known, key); !lack.empty())
      fail(ErrorCode::unreadable, "there is no setting ", quoted(key), lack);
}

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
  json operator()(const LagKv& part) const { return {{"kept", part.keep()}}; }
  json operator()(const Precision& part) const {
    json out = json::object();
    if (part.scales) {
      out["scales"] = {{"keys", part.scales->keys}, {"values", part.scales->values}};
      if (!part.scales->queries.empty()) out["scales"]["queries"] = part.scales->queries;
    }
    if (!part.fixed) return out;
    for (const KvFormats& layer : *part.fixed) {
      out["keys"].push_back(facts_of(layer.keys).word);
      out["values"].push_back(facts_of(layer.values).word);
    }
    return out;
  }
  /// Budgets of layers or of heads, if the part has them.
  template <class Other>
  json operator()(const Other& part) const {
    if constexpr (requires { part.fixed; })
      if (part.fixed) return {{"budgets", *part.fixed}};
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
  void operator()(HeadKv& part) const {
    if (result.contains("budgets"))
      part.fixed = list_member<std::vector<std::int64_t>>(result, "budgets");
  }
  void operator()(const LagKv& part) const {
    if (result.contains("kept") && result.at("kept") != part.keep())
      fail(ErrorCode::unreadable, "result.kept is ", printable(result.at("kept").dump()), ", and ",
           part.ratio, " of ", part.lag, " tokens are ", part.keep());
  }
  void operator()(Precision& part) const {
    if (result.contains("scales")) {
      const json& scales = result.at("scales");
      part.scales.emplace();
      for (const auto& [side, rows] : {std::pair{"keys", &Fp8Scales::keys},
                                       {"values", &Fp8Scales::values},
                                       {"queries", &Fp8Scales::queries}})
        if (scales.contains(side))
          (*part.scales).*rows = list_member<std::vector<double>>(scales, side);
    }
    if (!result.contains("keys") && !result.contains("values")) return;
    const auto keys = formats("keys"), values = formats("values");
    if (keys.size() != values.size())
      fail(ErrorCode::unreadable, "result has formats of ", keys.size(), " layers' keys and of ",
           values.size(), " layers' values");
    part.fixed.emplace();
    for (std::size_t l = 0; l < keys.size(); ++l) part.fixed->push_back({keys[l], values[l]});
  }
  std::vector<KvFormat> formats(const char* side) const {
    std::vector<KvFormat> out;
    for (const auto& word : list_member<std::string>(result, side)) {
      const auto known = kv_format_called(word);
      if (!known)
        fail(ErrorCode::unreadable, "result.", side, ": there is no format ", quoted(word));
      out.push_back(*known);
    }
    return out;
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

/// A pattern that was imported: it says beforehand which heads are trimmed.
Part part_of_heads(const json& section) {
  Part streaming = Streaming{};
  read_settings(*find_part("streaming"), object_member(section, "settings"), streaming);
  SimLayerKv part;
  part.keep = std::get<Streaming>(streaming).keep;
  part.per_head = true;
  part.fixed = read_lazy(object_member(section, "result"));
  if (!part.fixed) fail(ErrorCode::unreadable, "result.lazy_heads is missing");
  return part;
}

/// What a section's part is called.
const PartName& part_name(const std::string& section, const json& from) {
  if (!method::kBaseline.is(section)) return *find_part(section);
  const auto name = from.find("name");
  if (name == from.end() || !name->is_string())
    fail(ErrorCode::unreadable, "name is missing, or no text");
  auto text = name->get<std::string>();
  const PartName* known = find_part(text);
  if (!known || !method::kBaseline.is(section_name(known->standard)))
    fail(ErrorCode::unreadable, "name ", quoted(text), " is no baseline's");
  return *known;
}

}  // namespace

json section_of(const Part& part) {
  const auto section = section_name(part);
  const auto name = method::kBaseline.is(section) ? name_of(part) : section;
  json out = {{"settings", write_settings(*find_part(name), part)},
              {"result", std::visit(Result{}, part)}};
  if (method::kBaseline.is(section)) out["name"] = name;
  return out;
}

Part part_of(const std::string& section, const json& from) {
  return in_context(section, [&]() -> Part {
    if (!find_section(section)) fail(ErrorCode::unreadable, "no section of a policy document");
    const auto& settings = object_member(from, "settings");
    if (method::kHeads.is(section)) return part_of_heads(from);
    const PartName& known = part_name(section, from);
    Part part = known.standard;
    try {
      in_context("settings", [&] {
        read_settings(known, settings, part);
        check_settings(part);
      });
      std::visit(ReadResult{object_member(from, "result")}, part);
      if (std::holds_alternative<Precision>(part)) check_settings(part);
    } catch (const Error& error) {
      // The same checks also serve the command line, where such an error is one of usage.
      throw Error(ErrorCode::unreadable, error.what());
    }
    return part;
  });
}

}  // namespace kvatlas::calibrate
