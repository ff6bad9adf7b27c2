// SPDX-License-Identifier: Apache-2.0
#include "analyzer/tokenizer/byte_alphabet.hpp"

#include "base/unicode_text.hpp"

namespace kvatlas::model {

const ByteAlphabet& ByteAlphabet::get() {
  static const ByteAlphabet alphabet;
  return alphabet;
}

ByteAlphabet::ByteAlphabet() {
  byte_of_.fill(-1);
  char32_t next = 0x100;
  for (unsigned byte = 0; byte < 256; ++byte) {
    const bool visible = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD);
    const char32_t code = visible ? byte : next++;
    append_utf8(written_[byte], code);
    byte_of_[code] = static_cast<std::int16_t>(byte);
  }
}

std::string ByteAlphabet::spelled(std::string_view bytes) const {
  std::string out;
  out.reserve(bytes.size() * 2);
  for (const char c : bytes) out += character(static_cast<unsigned char>(c));
  return out;
}

std::string ByteAlphabet::bytes_of(std::string_view token) const {
  std::string out;
  out.reserve(token.size());
  for (std::size_t at = 0; at < token.size();) {
    const Utf8Char c = read_utf8(token, at);
    if (!c.valid || c.code >= byte_of_.size() || byte_of_[c.code] < 0) return std::string(token);
    out += static_cast<char>(static_cast<unsigned char>(byte_of_[c.code]));
    at += c.length;
  }
  return out;
}

}  // namespace kvatlas::model
