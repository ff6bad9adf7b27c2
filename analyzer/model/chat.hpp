// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "analyzer/model/tokenizer.hpp"

namespace kvatlas::model {

/// The ways of writing a conversation that kvatlas knows; `none` is the bare text.
enum class ChatFormat { none, chatml, llama2, llama3, mistral, phi3 };

const char* chat_format_name(ChatFormat format);
std::optional<ChatFormat> chat_format_named(std::string_view name);  // as --chat spells it

/// The format that a model's own template follows; nullopt if it has none or an unknown one.
std::optional<ChatFormat> recognise_chat_format(const Tokenizer& tokenizer);

struct ChatMessage {
  std::string role;  // "system", "user" or "assistant"
  std::string content;
};

/// The prompt text of a conversation, ending where the assistant's answer begins. Special tokens
/// are written out, BOS included where the format has one. chat_template: the model's own, which
/// decides details such as a default system message; may be empty.
std::string render_chat(ChatFormat format, const std::vector<ChatMessage>& messages,
                        std::string_view chat_template = {});

}  // namespace kvatlas::model
