// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

namespace kvatlas::model {

/// Members of the JSON objects of a file that is not trusted.

/// The member of that name; nullptr if it is absent or null. Error(unreadable) if `object` is no
/// object.
const nlohmann::json* find_member(const nlohmann::json& object, const char* name);

/// Members of one type; Error(unreadable) naming the member if it has another type.
std::optional<std::string> string_member(const nlohmann::json& object, const char* name);
std::optional<bool> bool_member(const nlohmann::json& object, const char* name);
std::optional<std::int64_t> integer_member(const nlohmann::json& object, const char* name);
std::string require_string(const nlohmann::json& object, const char* name);
/// The array of that name, empty if absent.
const nlohmann::json& array_member(const nlohmann::json& object, const char* name);

std::int64_t as_integer(const nlohmann::json& value, const std::string& what);

}  // namespace kvatlas::model
