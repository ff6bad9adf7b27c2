// SPDX-License-Identifier: Apache-2.0
// What a server sends: the first byte says which kind of server it is, and whether it is a chat.
// Whatever it is, it is taken in pieces of any size.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/error.hpp"
#include "calibrate/endpoint/pairs.hpp"
#include "calibrate/endpoint/sse.hpp"

using namespace kvatlas;
using namespace kvatlas::calibrate;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const auto kinds = servers();
  const ServerTable own = *kinds[data[0] % kinds.size()];
  const ServerTable server = data[0] >= 128 ? chat_of(own) : own;
  const std::size_t piece = std::size_t{1} + data[1];
  const std::string_view text(reinterpret_cast<const char*>(data) + 2, size - 2);
  (void)error_text(server, text);
  ServedPrompt prompt;
  prompt.tokens = {1, 2, 3};
  prompt.max_new = 64;
  AskOptions options;
  options.top = server.most_top;
  try {
    ServedAnswerReader reader(server);
    EventReader events(server.form);
    const auto take = [&](std::string_view event) { reader.take(event, 1); };
    for (std::size_t at = 0; at < text.size(); at += piece)
      events.push(text.substr(at, piece), take);
    events.finish(take);
    const ServedAnswer answer = reader.finish(prompt, options);
    if (answer.prompt_tokens != 3 && server.takes_ids) std::abort();
    if (answer_line(answer_of_line(answer_line(answer))) != answer_line(answer)) std::abort();
    (void)compare_answers(answer, answer, &answer, 20);
  } catch (const Error&) {
  }
  return 0;
}
