// SPDX-License-Identifier: Apache-2.0
// tokenizer.json and, after a zero byte, a text to encode.
#include <cstdint>

#include "base/error.hpp"
#include "tests/fuzz/two_parts.hpp"
#include "tests/fuzz/use_tokenizer.hpp"

using namespace kvatlas;
using namespace kvatlas::model;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto [tokenizer, text] = two_parts(data, size);
  try {
    use_tokenizer(Tokenizer::from_json(tokenizer), text);
  } catch (const Error&) {
  }
  return 0;
}
