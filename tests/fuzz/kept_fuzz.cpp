// SPDX-License-Identifier: Apache-2.0
// Lines of kept tokens: what is read can be shown, at every cut, of all heads and of one.
#include <cstdint>
#include <cstdlib>
#include <iostream>

#include "base/error.hpp"
#include "viewer/models/kept_tokens.hpp"

using namespace kvatlas;
using namespace kvatlas::viewer;

namespace {

void check(const KeptTokens& kept, const KeptChoices& choices) {
  const KeptView view = kept_view(kept, choices);
  for (const auto& matrix : view.shares.matrices)
    for (const double share : matrix.values)
      if (!(share >= 0 && share <= 1)) std::abort();
  for (const auto& text : view.texts)
    for (const auto& token : text.tokens)
      if (!(token.value >= 0 && token.value <= 1)) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const KeptTokens kept =
        parse_kept_tokens({reinterpret_cast<const char*>(data), size}, "kept.jsonl");
    for (std::size_t prompt = 0; prompt < kept.prompts.size(); ++prompt) {
      const auto& runs = kept.prompts[prompt].runs;
      if (kept.prompts[prompt].most_read() > 4096) continue;  // larger ones only take longer
      for (std::size_t run = 0; run < runs.size(); ++run)
        for (const auto& held : runs[run].held)
          for (const std::int64_t read : {held.read, kept.prompts[prompt].most_read()})
            for (const auto head : {std::optional<std::size_t>(), std::optional<std::size_t>(0)})
              check(kept, {prompt, run, runs.size() - 1, read, head});
    }
  } catch (const Error& error) {
    if (error.code() == ErrorCode::unreadable) return 0;
    std::cerr << error.what() << '\n';
    std::abort();
  }
  return 0;
}
