// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "analyzer/jinja/jinja.hpp"
#include "analyzer/tokenizer/tokenizer.hpp"

namespace kvatlas::model {

/// The day that it always is for a template that asks (strftime_now): a prompt must not change with
/// the day. It is the one that Llama 3's own template takes where it is told none.
inline constexpr const char* kTemplateDate = "2024-07-26";

struct ChatMessage {
  std::string role;  // "system", "user" or "assistant"; a template may know others
  std::string content;
};

/// A way of writing a conversation: a model's own template, or a format for models without one.
class Chat {
 public:
  /// "auto", the model's own, or a name of format_names(). Error(usage) for other names, and where
  /// a model without a template is to use its own; Error(unreadable) for a template that is no
  /// Jinja.
  Chat(std::string_view name, const Tokenizer* tokenizer);

  static std::vector<std::string> format_names();  // "none" first, which is the bare text

  const std::string& name() const { return name_; }
  bool is_bare() const { return name_ == "none"; }

  /// The prompt text of a conversation, ending where the assistant's answer begins, as the template
  /// makes it in transformers. Special tokens are written out, BOS included where the template has
  /// one: encode it without add_special. Error where the template refuses the conversation.
  std::string render(const std::vector<ChatMessage>& messages) const;

  /// Whether the template writes the functions that it is given.
  bool knows_tools() const;
  /// The same of messages as templates take them, with functions that the assistant may call: lists
  /// in OpenAI's form, in which the arguments of calls are objects.
  std::string render(const nlohmann::ordered_json& messages,
                     const nlohmann::ordered_json& tools) const;

 private:
  std::string name_;
  JinjaTemplate template_;
  std::map<std::string, std::string> special_tokens_;
};

}  // namespace kvatlas::model
