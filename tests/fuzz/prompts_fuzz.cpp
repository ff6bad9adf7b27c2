// SPDX-License-Identifier: Apache-2.0
// A file of prompts: what is read must be written, and read again as the same.
#include <cstdlib>
#include <iostream>

#include "base/error.hpp"
#include "data/prompts.hpp"
#include "tests/fuzz/input_file.hpp"

using namespace kvatlas;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const InputFile file("prompts.jsonl");
  std::vector<data::Prompt> prompts;
  try {
    prompts = data::read_prompts(file.write(data, size)).prompts;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::internal) return 0;
    std::cerr << error.what() << '\n';
    std::abort();
  }
  for (const auto& prompt : prompts) {
    const std::string line = data::prompt_line(prompt);
    const data::Prompt again = data::parse_line(line).prompts.at(0);
    if (line.find('\n') == line.npos && data::prompt_line(again) == line &&
        again.with_answer_prefix() == prompt.with_answer_prefix() && again.tokens == prompt.tokens)
      continue;
    std::cerr << "not read as it was written: " << line << '\n';
    std::abort();
  }
  return 0;
}
