// SPDX-License-Identifier: Apache-2.0
#include "calibrate/search/repeat_request.hpp"

#include <algorithm>

#include "analyzer/jinja/chat.hpp"
#include "base/error.hpp"

namespace kvatlas::calibrate {
namespace {

/// What a chat format writes before a user's message and behind it.
struct Frame {
  std::string before, behind;
};

Frame frame_of(const model::Chat& chat) {
  const std::string text = "the text", mark = "\n################";
  const std::string whole = chat.render({{"user", text + mark}});
  const auto begin = whole.find(text), end = whole.find(mark);
  if (begin == whole.npos || end == whole.npos)
    fail(ErrorCode::usage,
         "the chat template does not write a user's message as it is, so the "
         "model cannot be asked to repeat the prompt");
  return {whole.substr(0, begin), whole.substr(end + mark.size())};
}

/// Whether the prompt begins with these tokens. The last of them may be one with what follows.
bool begins_with(std::span<const std::int64_t> prompt, const std::vector<std::int64_t>& tokens) {
  const auto same = std::mismatch(prompt.begin(), prompt.end(), tokens.begin(), tokens.end());
  return tokens.empty() || (same.second != tokens.begin() && tokens.end() - same.second <= 1);
}

}  // namespace

RepeatRequest repeat_request(const model::ModelFile& model, const std::string& chat,
                             std::span<const std::int64_t> prompt) {
  const model::Tokenizer* tokenizer = model.tokenizer().get();
  if (!tokenizer)
    fail(ErrorCode::usage,
         "'kvzip' asks the model in words to repeat the prompt, and the model has no tokenizer "
         "that could encode them");
  const auto encode = [&](const std::string& text) {
    return tokenizer->encode(text, {.add_special = false, .parse_special = true});
  };
  RepeatRequest request;
  request.all = encode("\n\nRepeat the previous context exactly.");
  request.part = encode("\n\nRepeat the part of the previous context exactly, starting with");
  request.end = encode("\n");
  const bool named = chat != "none";
  if (!named && !tokenizer->chat_template()) return request;
  const Frame frame = frame_of(model::Chat(named ? chat : "auto", tokenizer));
  const auto before = encode(frame.before);
  // A format that writes nothing before a message says nothing of a prompt.
  if ((named || !before.empty()) && begins_with(prompt, before)) {
    request.before_text = std::min(static_cast<std::int64_t>(before.size()),
                                   static_cast<std::int64_t>(prompt.size()));
    request.end = encode(frame.behind);
  }
  return request;
}

}  // namespace kvatlas::calibrate
