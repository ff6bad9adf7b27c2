// SPDX-License-Identifier: Apache-2.0
// How a report becomes JSON and is read back. A report is a struct with one list of its fields:
//
//   void fields(auto& field) {
//     field("score", score)         // is written in any case, and missed by name where it lacks
//         .maybe("texts", texts);   // is left out where it is not known
//   }
//
// The same list writes and reads. Members that no list names are passed over.
#pragma once

#include <cmath>
#include <concepts>
#include <map>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/json_text.hpp"
#include "calibrate/rules/policy_reports.hpp"

namespace kvatlas::calibrate {

class FieldWriter {
 public:
  explicit FieldWriter(nlohmann::json& object) : object_(object) {}

  template <class T>
  FieldWriter& operator()(const char* name, T& value) {
    object_[name] = json_of(value);
    return *this;
  }
  template <class T>
  FieldWriter& maybe(const char* name, T& value) {
    return is_known(value) ? (*this)(name, value) : *this;
  }
  /// A number of bytes or tokens, which is written whole where it is whole.
  FieldWriter& count(const char* name, double& value) {
    object_[name] = count_json(value);
    return *this;
  }
  FieldWriter& maybe_count(const char* name, double& value) {
    return is_known(value) ? count(name, value) : *this;
  }

 private:
  static bool is_known(double value) { return !std::isnan(value); }
  static bool is_known(std::integral auto value) { return value != 0; }
  static bool is_known(const Estimate& value) { return !std::isnan(value.mean); }
  static bool is_known(const Divergence& value) { return !std::isnan(value.mean); }
  template <class T>
  static bool is_known(const std::optional<T>& value) {
    return value.has_value();
  }
  template <class List>
  requires requires(const List& list) { list.empty(); }
  static bool is_known(const List& list) { return !list.empty(); }

  static nlohmann::json json_of(double value) { return number_json(value); }
  static nlohmann::json json_of(std::integral auto value) { return value; }
  static nlohmann::json json_of(const std::string& value) { return value; }
  static nlohmann::json json_of(const nlohmann::json& value) { return value; }
  static nlohmann::json json_of(const Estimate& value) { return estimate_json(value); }
  static nlohmann::json json_of(const Divergence& value) { return divergence_json(value); }
  template <class T>
  static nlohmann::json json_of(std::optional<T>& value) {
    return value ? json_of(*value) : nlohmann::json();
  }
  template <class T>
  static nlohmann::json json_of(std::vector<T>& values) {
    auto out = nlohmann::json::array();
    if constexpr (std::same_as<T, bool>)
      for (const bool value : values) out.push_back(value);
    else
      for (T& value : values) out.push_back(json_of(value));
    return out;
  }
  template <class T>
  static nlohmann::json json_of(std::map<std::string, T>& values) {
    auto out = nlohmann::json::object();
    for (auto& [name, value] : values) out[name] = json_of(value);
    return out;
  }
  template <class Report>
  requires requires(Report& report, FieldWriter& field) { report.fields(field); }
  static nlohmann::json json_of(Report& report) {
    auto out = nlohmann::json::object();
    FieldWriter field(out);
    report.fields(field);
    return out;
  }

  template <class Report>
  friend nlohmann::json report_json(Report report);
  nlohmann::json& object_;
};

template <class Report>
nlohmann::json report_json(Report report) {
  return FieldWriter::json_of(report);
}

class FieldReader {
 public:
  FieldReader(const nlohmann::json& object, std::string place)
      : object_(object), place_(std::move(place)) {
    if (!object.is_object()) fail(ErrorCode::unreadable, place_, " is no object");
  }

  template <class T>
  const FieldReader& operator()(const char* name, T& value) const {
    const auto found = object_.find(name);
    if (found == object_.end()) fail(ErrorCode::unreadable, place_, ".", name, " is missing");
    read(*found, place_ + "." + name, value);
    return *this;
  }
  template <class T>
  const FieldReader& maybe(const char* name, T& value) const {
    const auto found = object_.find(name);
    return found == object_.end() || found->is_null() ? *this : (*this)(name, value);
  }
  const FieldReader& count(const char* name, double& value) const { return (*this)(name, value); }
  const FieldReader& maybe_count(const char* name, double& value) const {
    return maybe(name, value);
  }

  template <class T>
  static void read(const nlohmann::json& from, const std::string& place, T& value) {
    const auto require = [&](bool fits, const char* what) {
      if (!fits)
        fail(ErrorCode::unreadable, place, " is ", printable(from.dump()), ", expected ", what);
    };
    if constexpr (std::same_as<T, bool>) {
      require(from.is_boolean(), "true or false");
      value = from.get<bool>();
    } else if constexpr (std::integral<T>) {
      require(from.is_number_integer() && std::abs(from.get<double>()) < 0x1p62, "a whole number");
      value = static_cast<T>(from.get<std::int64_t>());
    } else if constexpr (std::same_as<T, double>) {
      require(from.is_number() || from.is_null(), "a number or null");
      value = number_of(from);
    } else if constexpr (std::same_as<T, std::string>) {
      require(from.is_string(), "a text");
      value = from.get<std::string>();
    } else if constexpr (std::same_as<T, nlohmann::json>) {
      value = from;
    } else if constexpr (std::same_as<T, Estimate>) {
      FieldReader(from, place)("mean", value.mean)("low", value.low)("high", value.high);
    } else if constexpr (std::same_as<T, Divergence>) {
      require(from.is_object(), "an object");
      value = divergence_from(from);
    } else {
      read_whole(from, place, value);
    }
  }

 private:
  template <class T>
  static void read_whole(const nlohmann::json& from, const std::string& place,
                         std::optional<T>& value) {
    if (from.is_null())
      value.reset();
    else
      read(from, place, value.emplace());
  }
  template <class T>
  static void read_whole(const nlohmann::json& from, const std::string& place,
                         std::vector<T>& values) {
    if (!from.is_array()) fail(ErrorCode::unreadable, place, " is no list");
    values.clear();
    for (const auto& one : from) {
      T value{};
      read(one, str(place, ".", values.size()), value);
      values.push_back(std::move(value));
    }
  }
  template <class T>
  static void read_whole(const nlohmann::json& from, const std::string& place,
                         std::map<std::string, T>& values) {
    if (!from.is_object()) fail(ErrorCode::unreadable, place, " is no object");
    values.clear();
    for (const auto& [name, one] : from.items())
      read(one, place + "." + printable(name), values[name]);
  }
  template <class Report>
  requires requires(Report& report, const FieldReader& field) { report.fields(field); }
  static void read_whole(const nlohmann::json& from, const std::string& place, Report& report) {
    const FieldReader field(from, place);
    report.fields(field);
  }

  const nlohmann::json& object_;
  std::string place_;
};

/// `place` is what the report is called where something is missing: "pod.measured".
/// Error(unreadable) if a field is missing or of another type.
template <class Report>
Report read_report(const nlohmann::json& from, const std::string& place) {
  Report report;
  FieldReader::read(from, place, report);
  return report;
}

}  // namespace kvatlas::calibrate
