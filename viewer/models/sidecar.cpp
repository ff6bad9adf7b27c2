// SPDX-License-Identifier: Apache-2.0
#include "viewer/models/sidecar.hpp"

#include <fstream>

#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/json_text.hpp"
#include "base/whole_file.hpp"
#include "calibrate/policy/policy.hpp"
#include "viewer/models/head_filter.hpp"

namespace kvatlas::viewer {

namespace {

using nlohmann::json;

constexpr std::uintmax_t kLargest = std::uintmax_t{16} << 20;
constexpr int kDeepest = 8;
constexpr std::size_t kMostEntries = 10000, kLongestText = 100000;
constexpr std::int64_t kMostNumber = std::int64_t{1} << 40;
constexpr const char* kSchema = "kvatlas.view/1";

json json_of(const Place& place) {
  json out = {{"at", {place.layer, place.head}}};
  if (!place.screen.empty()) out["screen"] = place.screen;
  if (place.sample >= 0) out["sample"] = place.sample;
  if (place.query >= 0) out["query"] = place.query;
  if (place.key >= 0) out["key"] = place.key;
  if (place.region) out["region"] = *place.region;
  if (place.tokens) out["tokens"] = *place.tokens;
  if (!place.filter.empty()) out["filter"] = place.filter;
  if (place.maximum) out["reduction"] = "max";
  return out;
}

const json& member(const json& object, const char* name) {
  static const json null;
  const auto found = object.find(name);
  return found == object.end() ? null : *found;
}

std::int64_t number_of(const json& value, const char* name) {
  if (value.is_null()) return -1;
  if (!value.is_number_integer() || value < 0 || value > kMostNumber)
    fail(ErrorCode::unreadable, quoted(name), " is ",
         quoted(value.is_primitive() ? value.dump() : value.type_name()),
         ", expected a whole number from 0 on");
  return value.get<std::int64_t>();
}

template <std::size_t N>
std::optional<std::array<std::int64_t, N>> whole_numbers_in(const json& value, const char* name) {
  if (value.is_null()) return std::nullopt;
  if (!value.is_array() || value.size() != N)
    fail(ErrorCode::unreadable, quoted(name), " is not a list of ", N, " numbers");
  std::array<std::int64_t, N> numbers{};
  for (std::size_t i = 0; i < N; ++i) numbers[i] = number_of(value[i], name);
  return numbers;
}

std::string text_of(const json& value, const char* name) {
  if (value.is_null()) return "";
  if (!value.is_string() || value.get_ref<const std::string&>().size() > kLongestText)
    fail(ErrorCode::unreadable, quoted(name), " is not a text of at most ", kLongestText, " bytes");
  return value.get<std::string>();
}

Place place_of(const json& value) {
  if (!value.is_object()) fail(ErrorCode::unreadable, "a place is not a JSON object");
  Place place;
  const json& at = member(value, "at");
  if (!at.is_array() || at.size() != 2)
    fail(ErrorCode::unreadable, "'at' is not a list of a layer and a head");
  place.layer = number_of(at[0], "at");
  place.head = number_of(at[1], "at");
  place.screen = text_of(member(value, "screen"), "screen");
  place.sample = number_of(member(value, "sample"), "sample");
  place.query = number_of(member(value, "query"), "query");
  place.key = number_of(member(value, "key"), "key");
  place.maximum = text_of(member(value, "reduction"), "reduction") == "max";
  place.region = whole_numbers_in<4>(member(value, "region"), "region");
  place.tokens = whole_numbers_in<2>(member(value, "tokens"), "tokens");
  if (place.tokens && (*place.tokens)[0] >= (*place.tokens)[1])
    fail(ErrorCode::unreadable, "'tokens' has the greater number first");
  place.filter = text_of(member(value, "filter"), "filter");
  const HeadFilter understood(place.filter);  // or Error
  return place;
}

/// The list of that name; Error if it is no list, or too long.
const json& list_of(const json& object, const char* name) {
  static const json none = json::array();
  const json& list = member(object, name);
  if (list.is_null()) return none;
  if (!list.is_array() || list.size() > kMostEntries)
    fail(ErrorCode::unreadable, quoted(name), " is not a list of at most ", kMostEntries);
  return list;
}

json read_json(const std::filesystem::path& path) {
  if (!std::filesystem::is_regular_file(path))  // a pipe would be waited for
    fail(ErrorCode::unreadable, "it is not a regular file");
  const auto size = std::filesystem::file_size(path);
  if (size > kLargest)
    fail(ErrorCode::unreadable, "it has ", size, " bytes, expected at most ", kLargest);
  std::ifstream in(path, std::ios::binary);
  std::string text(size, '\0');
  if (!in.read(text.data(), static_cast<std::streamsize>(size)))
    fail(ErrorCode::unreadable, "it cannot be read");
  json value;
  try {
    value = parse_json(text, kDeepest);
  } catch (const Error&) {
    value = nullptr;
  }
  if (!value.is_object()) fail(ErrorCode::unreadable, "it is not a JSON object");
  return value;
}

}  // namespace

std::filesystem::path sidecar_path(const std::filesystem::path& profile) {
  auto path = profile;
  path += ".view.json";
  return path;
}

Sidecar read_sidecar(const std::filesystem::path& path) {
  std::error_code problem;
  if (!std::filesystem::exists(path, problem)) return {};
  return in_context(quoted(path.string(), 400), [&] {
    const json value = read_json(path);
    const auto schema = text_of(member(value, "schema"), "schema");
    if (schema.rfind("kvatlas.view/", 0) != 0)
      fail(ErrorCode::unreadable, "it is not a file of pins and notes: 'schema' is ",
           quoted(schema), ", expected ", quoted(kSchema));
    if (schema != kSchema && schema.rfind(std::string(kSchema) + ".", 0) != 0)
      fail(ErrorCode::unreadable, "its schema is ", quoted(schema),
           ", which this version does not know");
    Sidecar sidecar;
    for (const auto& pin : list_of(value, "pins")) {
      const Place place = place_of(pin);
      sidecar.pins.push_back({place, text_of(member(pin, "title"), "title")});
    }
    for (const auto& note : list_of(value, "notes")) {
      const Place place = place_of(note);
      sidecar.notes.push_back({place, text_of(member(note, "text"), "text")});
    }
    return sidecar;
  });
}

void write_sidecar(const Sidecar& sidecar, const std::filesystem::path& path) {
  if (sidecar == Sidecar{}) {
    std::filesystem::remove(path);
    return;
  }
  json value = {{"schema", kSchema}, {"pins", json::array()}, {"notes", json::array()}};
  for (const auto& pin : sidecar.pins) {
    json entry = json_of(pin.place);
    entry["title"] = pin.title;
    value["pins"].push_back(entry);
  }
  for (const auto& note : sidecar.notes) {
    json entry = json_of(note.place);
    entry["text"] = note.text;
    value["notes"].push_back(entry);
  }
  write_whole(calibrate::canonical_json(value), path, true);
}

}  // namespace kvatlas::viewer
