// SPDX-License-Identifier: Apache-2.0
// A SentencePiece model (tokenizer.model); its last bytes are also a text to encode.
#include <cstdint>
#include <string_view>

#include "base/error.hpp"
#include "tests/fuzz/use_tokenizer.hpp"

using namespace kvatlas;
using namespace kvatlas::model;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  try {
    use_tokenizer(Tokenizer::from_sentencepiece(input), input.substr(size - size / 4));
  } catch (const Error&) {
  }
  return 0;
}
