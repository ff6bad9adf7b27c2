// SPDX-License-Identifier: Apache-2.0
#include "analyzer/tokenizer/protobuf_reader.hpp"

#include <cstring>

#include "base/error.hpp"

namespace kvatlas::model {

bool ProtobufReader::next() {
  if (rest_.empty()) return false;
  const std::uint64_t tag = read_varint();
  field_ = tag >> 3;
  const std::uint64_t wire = tag & 7;
  switch (wire) {
    case 0:
      integer_ = read_varint();
      break;
    case 1:
      bytes_ = take(8);
      break;
    case 2:
      bytes_ = take(read_varint());
      break;
    case 5:
      bytes_ = take(4);
      break;
    default:
      fail(ErrorCode::unreadable, "damaged protobuf: field ", field_, " has the wire type ", wire);
  }
  wire_ = static_cast<Wire>(wire);
  return true;
}

std::uint64_t ProtobufReader::integer() const {
  require(Wire::varint, "an integer");
  return integer_;
}

float ProtobufReader::number() const {
  require(Wire::fixed32, "a float");
  float value = 0;
  std::memcpy(&value, bytes_.data(), sizeof value);
  return value;
}

std::string_view ProtobufReader::bytes() const {
  require(Wire::bytes, "bytes");
  return bytes_;
}

std::uint64_t ProtobufReader::read_varint() {
  std::uint64_t value = 0;
  for (unsigned shift = 0; shift < 64; shift += 7) {
    const auto byte = static_cast<unsigned char>(take(1)[0]);
    value |= std::uint64_t{byte & 0x7Fu} << shift;
    if ((byte & 0x80) == 0) return value;
  }
  fail(ErrorCode::unreadable, "damaged protobuf: an integer of more than 10 bytes");
}

std::string_view ProtobufReader::take(std::uint64_t count) {
  if (count > rest_.size()) {
    fail(ErrorCode::unreadable, "damaged protobuf: ", count, " bytes announced, ", rest_.size(),
         " left");
  }
  const std::string_view taken = rest_.substr(0, static_cast<std::size_t>(count));
  rest_.remove_prefix(static_cast<std::size_t>(count));
  return taken;
}

void ProtobufReader::require(Wire wire, const char* expected) const {
  if (wire_ != wire) {
    fail(ErrorCode::unreadable, "damaged protobuf: field ", field_, " is not ", expected);
  }
}

}  // namespace kvatlas::model
