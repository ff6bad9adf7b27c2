// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "analyzer/config/config_files.hpp"
#include "base/error.hpp"

namespace kvatlas::model {

inline std::string shown(const nlohmann::json& value) {
  return printable(value.dump(-1, ' ', true), 60);
}

/// The numbers of a JSON object, checked. A key that is absent or null gives nullopt.
class Fields {
 public:
  explicit Fields(const nlohmann::json& object, std::string place = {})
      : object_(&object), place_(std::move(place)) {}

  const nlohmann::json* find(const char* key) const {
    const auto found = object_->find(key);
    return found == object_->end() || found->is_null() ? nullptr : &*found;
  }
  bool is_null(const char* key) const {
    const auto found = object_->find(key);
    return found != object_->end() && found->is_null();
  }
  /// How messages call a key: 'rope_scaling.factor'.
  std::string name(const char* key) const { return "'" + place_ + key + "'"; }

  [[noreturn]] void refuse(const char* key, const std::string& expected) const {
    fail(ErrorCode::unreadable, name(key), ": found ", shown(object_->at(key)), ", expected ",
         expected);
  }

  /// A whole number from 1 to `most`.
  std::optional<std::int64_t> count(const char* key, std::int64_t most) const {
    const nlohmann::json* value = find(key);
    if (value == nullptr) return std::nullopt;
    const double number = value->is_number() ? value->get<double>() : 0.0;
    if (!(number >= 1.0) || number > static_cast<double>(most) || number != std::floor(number))
      refuse(key, str("a whole number from 1 to ", most));
    return static_cast<std::int64_t>(number);
  }
  std::int64_t required_count(const char* key, std::int64_t most) const {
    if (auto value = count(key, most)) return *value;
    fail(ErrorCode::unreadable, name(key), " is missing");
  }

  /// A whole number from 1 to `most` for each of `layers`, of a list or one for all; empty if there
  /// is none.
  std::vector<std::int64_t> counts(const char* key, std::int64_t most, std::int64_t layers) const {
    const nlohmann::json* value = find(key);
    if (value == nullptr) return {};
    if (!value->is_array()) return std::vector<std::int64_t>(layers, *count(key, most));
    std::vector<std::int64_t> numbers;
    for (const nlohmann::json& element : *value) {
      const double number = element.is_number() ? element.get<double>() : 0.0;
      if (!(number >= 1.0) || number > static_cast<double>(most) || number != std::floor(number))
        refuse(key, str("whole numbers from 1 to ", most));
      numbers.push_back(static_cast<std::int64_t>(number));
    }
    if (std::ssize(numbers) != layers) refuse(key, str("a list of ", layers, " numbers"));
    return numbers;
  }

  /// A positive number of sane size.
  std::optional<double> positive(const char* key) const {
    const nlohmann::json* value = find(key);
    if (value == nullptr) return std::nullopt;
    const double number = value->is_number() ? value->get<double>() : 0.0;
    if (!(number >= 1e-30) || number > 1e30) refuse(key, "a positive number");
    return number;
  }

  std::optional<bool> flag(const char* key) const {
    const nlohmann::json* value = find(key);
    if (value == nullptr) return std::nullopt;
    if (!value->is_boolean()) refuse(key, "true or false");
    return value->get<bool>();
  }

  std::optional<std::string> text(const char* key) const {
    const nlohmann::json* value = find(key);
    if (value == nullptr) return std::nullopt;
    if (!value->is_string()) refuse(key, "a string");
    return value->get<std::string>();
  }

  std::optional<Fields> object(const char* key) const {
    const nlohmann::json* value = find(key);
    if (value == nullptr) return std::nullopt;
    if (!value->is_object()) refuse(key, "an object");
    return Fields(*value, place_ + key + ".");
  }

  /// Positive numbers of a list; empty if there is none.
  std::vector<double> positives(const char* key) const {
    const nlohmann::json* value = find(key);
    if (value == nullptr) return {};
    std::vector<double> numbers;
    if (!value->is_array()) refuse(key, "a list of numbers");
    for (const nlohmann::json& element : *value) {
      if (!element.is_number() || !(element.get<double>() > 0.0))
        refuse(key, "a list of positive numbers");
      numbers.push_back(element.get<double>());
    }
    return numbers;
  }

  /// One token id or a list of them.
  std::vector<std::int64_t> tokens(const char* key) const {
    const nlohmann::json* value = find(key);
    if (value == nullptr) return {};
    std::vector<std::int64_t> ids;
    const nlohmann::json list = value->is_array() ? *value : nlohmann::json::array({*value});
    for (const nlohmann::json& id : list) {
      if (!id.is_number_integer() || id.get<double>() < -1.0 ||
          id.get<double>() > static_cast<double>(Limits::vocabulary))
        refuse(key, "a token id or a list of them");
      if (id.get<std::int64_t>() >= 0) ids.push_back(id.get<std::int64_t>());  // -1: none
    }
    return ids;
  }

 private:
  const nlohmann::json* object_;
  std::string place_;
};

}  // namespace kvatlas::model
