// SPDX-License-Identifier: Apache-2.0
#include "data/tasks_impl.hpp"

namespace kvatlas::data {
namespace {

Prompt make_stretch(const Haystack& text, const TaskRequest& request, const CountTokens& count) {
  return fit_length(request.length, 1, count, [&](std::int64_t pieces) {
    Prompt prompt;
    prompt.text = text.first(pieces);
    return prompt;
  });
}

}  // namespace

Prompt make_prose(const TaskRequest& request, const Options&, const CountTokens& count) {
  return make_stretch(Haystack::prose(request.seed), request, count);
}

Prompt make_code(const TaskRequest& request, const Options&, const CountTokens& count) {
  return make_stretch(Haystack::code(request.seed), request, count);
}

}  // namespace kvatlas::data
