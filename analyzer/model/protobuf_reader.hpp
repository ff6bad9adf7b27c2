// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

namespace kvatlas::model {

/// The fields of one protobuf message, one after the other. What is damaged is an
/// Error(unreadable).
class ProtobufReader {
 public:
  explicit ProtobufReader(std::string_view bytes) : rest_(bytes) {}

  bool next();  // false at the end

  std::uint64_t field() const { return field_; }
  // The value, by what it was written as; another type is an error that names the field.
  std::uint64_t integer() const;
  bool boolean() const { return integer() != 0; }
  float number() const;
  std::string_view bytes() const;

 private:
  enum class Wire { varint = 0, fixed64 = 1, bytes = 2, fixed32 = 5 };

  std::uint64_t read_varint();
  std::string_view take(std::uint64_t count);
  void require(Wire wire, const char* expected) const;

  std::string_view rest_;
  std::uint64_t field_ = 0;
  Wire wire_ = Wire::varint;
  std::uint64_t integer_ = 0;
  std::string_view bytes_;  // also those of fixed32 and fixed64
};

}  // namespace kvatlas::model
