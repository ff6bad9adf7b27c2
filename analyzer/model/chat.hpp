// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "analyzer/model/tokenizer.hpp"

namespace kvatlas::model {

/// The ways of writing a conversation that kvatlas knows; `none` is the bare text.
enum class ChatFormat { none, chatml, llama2, llama3, mistral, phi3 };
/// What they are called, in the same order.
inline constexpr std::array kChatFormats = {"none",   "chatml",  "llama2",
                                            "llama3", "mistral", "phi3"};

const char* chat_format_name(ChatFormat format);
std::optional<ChatFormat> chat_format_named(std::string_view name);  // as --chat spells it

/// The format that a model's own template follows, or nullopt if it has none or an unknown one. The
/// template is not run; its markers say which format it is.
std::optional<ChatFormat> recognise_chat_format(std::string_view chat_template);
std::optional<ChatFormat> recognise_chat_format(const Tokenizer& tokenizer);

struct ChatMessage {
  std::string role;  // "system", "user" or "assistant"
  std::string content;
};

/// The prompt text of a conversation, ending where the assistant's answer begins. Special tokens
/// are written out, BOS included where the format has one: encode it without add_special.
/// `chat_template` is the model's own, which decides details such as a default system message; it
/// may be empty. `bos` is how the model spells its BOS; if empty, the usual spelling of the format
/// is taken. llama3 leaves out the date that Llama 3.1's template writes. Error(usage) for an
/// unknown role.
std::string render_chat(ChatFormat format, const std::vector<ChatMessage>& messages,
                        std::string_view chat_template = {}, std::string_view bos = {});

}  // namespace kvatlas::model
