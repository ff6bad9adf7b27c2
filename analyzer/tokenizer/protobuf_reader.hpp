// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

namespace kvatlas::model {

/// Reads the fields of one protobuf message, one after the other. Error(unreadable) if it is
/// damaged.
class ProtobufReader {
 public:
  explicit ProtobufReader(std::string_view bytes) : rest_(bytes) {}

  bool next();  // false at the end

  std::uint64_t field() const { return field_; }
  // The value, read as the type that it was written as. Error(unreadable) names a field of another
  // type.
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
  std::string_view bytes_;  // of this field, if it is a text, fixed32 or fixed64
};

}  // namespace kvatlas::model
