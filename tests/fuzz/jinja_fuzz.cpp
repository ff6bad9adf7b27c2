// SPDX-License-Identifier: Apache-2.0
// A chat template and, after a zero byte, a user's message.
#include <cstdint>
#include <string>

#include <nlohmann/json.hpp>

#include "analyzer/jinja/jinja.hpp"
#include "base/error.hpp"
#include "tests/fuzz/two_parts.hpp"

using namespace kvatlas;
using namespace kvatlas::model;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto [source, message] = two_parts(data, size);
  const nlohmann::ordered_json messages = {
      {{"role", "system"}, {"content", "Be brief."}},
      {{"role", "user"}, {"content", std::string(message)}},
      {{"role", "assistant"}, {"content", "<think>x</think> \n\xC3\xA9"}, {"tokens", 3}}};
  try {
    (void)JinjaTemplate(source).render({{"messages", messages},
                                        {"tools", nullptr},
                                        {"add_generation_prompt", true},
                                        {"bos_token", "<s>"}});
  } catch (const Error&) {
  }
  return 0;
}
