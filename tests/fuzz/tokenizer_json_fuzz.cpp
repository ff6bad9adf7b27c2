// SPDX-License-Identifier: Apache-2.0
// tokenizer.json and, after a zero byte, a text to encode.
#include <cstdint>
#include <string_view>

#include "kernels/base/error.hpp"
#include "tests/fuzz/use_tokenizer.hpp"

using namespace kvatlas;
using namespace kvatlas::model;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const auto end = input.find('\0');
  const auto text = end == input.npos ? std::string_view() : input.substr(end + 1);
  try {
    use_tokenizer(Tokenizer::from_json(input.substr(0, end)), text);
  } catch (const Error&) {
  }
  return 0;
}
