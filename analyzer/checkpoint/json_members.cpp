// SPDX-License-Identifier: Apache-2.0
#include "analyzer/checkpoint/json_members.hpp"

#include <limits>

#include "base/error.hpp"

namespace kvatlas::model {

namespace {

[[noreturn]] void fail_type(const nlohmann::json& value, const std::string& what,
                            const char* expected) {
  fail(ErrorCode::unreadable, "'", what, "' is of type ", value.type_name(), ", expected ",
       expected);
}

}  // namespace

const nlohmann::json* find_member(const nlohmann::json& object, const char* name) {
  if (!object.is_object()) {
    fail(ErrorCode::unreadable, "found a JSON ", object.type_name(), " where an object with '",
         name, "' was expected");
  }
  const auto found = object.find(name);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

std::optional<std::string> string_member(const nlohmann::json& object, const char* name) {
  const auto* value = find_member(object, name);
  if (!value) return std::nullopt;
  if (!value->is_string()) fail_type(*value, name, "a string");
  return value->get<std::string>();
}

std::optional<bool> bool_member(const nlohmann::json& object, const char* name) {
  const auto* value = find_member(object, name);
  if (!value) return std::nullopt;
  if (!value->is_boolean()) fail_type(*value, name, "true or false");
  return value->get<bool>();
}

std::int64_t as_integer(const nlohmann::json& value, const std::string& what) {
  if (!value.is_number_integer()) fail_type(value, what, "a whole number");
  if (value.is_number_unsigned() &&
      value.get<std::uint64_t>() > std::uint64_t{std::numeric_limits<std::int64_t>::max()}) {
    fail(ErrorCode::unreadable, "'", what, "' is ", value.get<std::uint64_t>(),
         ", more than any sensible value");
  }
  return value.get<std::int64_t>();
}

std::optional<std::int64_t> integer_member(const nlohmann::json& object, const char* name) {
  const auto* value = find_member(object, name);
  if (!value) return std::nullopt;
  return as_integer(*value, name);
}

std::string require_string(const nlohmann::json& object, const char* name) {
  auto value = string_member(object, name);
  if (!value) fail(ErrorCode::unreadable, "'", name, "' is missing");
  return *std::move(value);
}

const nlohmann::json& array_member(const nlohmann::json& object, const char* name) {
  static const nlohmann::json empty = nlohmann::json::array();
  const auto* value = find_member(object, name);
  if (!value) return empty;
  if (!value->is_array()) fail_type(*value, name, "a list");
  return *value;
}

}  // namespace kvatlas::model
