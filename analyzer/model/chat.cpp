// SPDX-License-Identifier: Apache-2.0
#include "analyzer/model/chat.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace kvatlas::model {

namespace {

bool has(std::string_view text, std::string_view part) { return text.find(part) != text.npos; }

std::string trimmed(std::string_view text) {
  constexpr std::string_view kSpaces = " \t\n\v\f\r";
  const auto begin = text.find_first_not_of(kSpaces);
  if (begin == text.npos) return {};
  return std::string(text.substr(begin, text.find_last_not_of(kSpaces) + 1 - begin));
}

/// A piece of a Jinja string literal with its escapes undone.
std::string unescaped(std::string_view literal) {
  std::string out;
  for (std::size_t at = 0; at < literal.size(); ++at) {
    if (literal[at] != '\\' || at + 1 == literal.size()) {
      out += literal[at];
      continue;
    }
    const char c = literal[++at];
    out += c == 'n' ? '\n' : c == 't' ? '\t' : c;
  }
  return out;
}

/// The end of a string literal's inside: its closing quote, escaped quotes passed over.
std::size_t literal_end(std::string_view text, std::size_t at, char quote) {
  while (at < text.size() && text[at] != quote) at += text[at] == '\\' ? 2 : 1;
  return at;
}

/// The system message that a chatml template puts where the conversation has none: written out in
/// one string literal, '<|im_start|>system\n…<|im_end|>'. Empty if there is none.
std::string default_system_message(std::string_view chat_template) {
  constexpr std::string_view kHead = "<|im_start|>system";
  constexpr std::string_view kTail = "<|im_end|>";
  std::size_t end = 0;
  for (auto at = chat_template.find(kHead); at != chat_template.npos;
       at = chat_template.find(kHead, end)) {
    const std::size_t begin = end = at + kHead.size();
    const char quote = at > 0 ? chat_template[at - 1] : '\0';
    if (quote != '\'' && quote != '"') continue;
    end = literal_end(chat_template, begin, quote);
    if (end >= chat_template.size()) return {};
    const std::string inside = unescaped(chat_template.substr(begin, end - begin));
    const auto tail = inside.find(kTail);
    if (inside.starts_with('\n') && tail != inside.npos) return inside.substr(1, tail - 1);
  }
  return {};
}

using Messages = std::vector<ChatMessage>;

void check(const Messages& messages) {
  for (const ChatMessage& message : messages) {
    if (message.role != "system" && message.role != "user" && message.role != "assistant") {
      fail(ErrorCode::usage, "chat role ", quoted(message.role),
           " is not known (system, user and assistant are)");
    }
  }
}

/// The system messages, joined; `rest` gets the others. For formats that have no turn of its own
/// for it.
std::string take_system(const Messages& messages, Messages& rest) {
  std::string system;
  for (const ChatMessage& message : messages) {
    if (message.role != "system") {
      rest.push_back(message);
      continue;
    }
    if (!system.empty()) system += "\n\n";
    system += message.content;
  }
  return system;
}

std::string chatml(const Messages& messages, std::string_view chat_template, std::string_view bos) {
  std::string out;
  if (has(chat_template, "bos_token")) out += bos;
  const auto turn = [&](const std::string& role, const std::string& content) {
    out += "<|im_start|>" + role + "\n" + content + "<|im_end|>\n";
  };
  const std::string system = default_system_message(chat_template);
  const bool has_system = !messages.empty() && messages.front().role == "system";
  if (!has_system && !system.empty()) turn("system", system);
  for (const ChatMessage& message : messages) turn(message.role, message.content);
  return out + "<|im_start|>assistant\n";
}

std::string llama2(const Messages& messages, std::string_view bos) {
  Messages turns;
  std::string system = take_system(messages, turns);
  std::string out;
  for (ChatMessage& message : turns) {
    if (message.role == "assistant") {
      out += " " + trimmed(message.content) + " </s>";
      continue;
    }
    if (!system.empty()) {
      message.content = "<<SYS>>\n" + system + "\n<</SYS>>\n\n" + message.content;
      system.clear();
    }
    out += std::string(bos) + "[INST] " + trimmed(message.content) + " [/INST]";
  }
  return out;
}

/// The date that Llama 3.1's own template writes is left out: a prompt must not change with the
/// day.
std::string llama3(const Messages& messages, std::string_view bos) {
  std::string out(bos);
  const auto head = [](const std::string& role) {
    return "<|start_header_id|>" + role + "<|end_header_id|>\n\n";
  };
  for (const ChatMessage& message : messages) {
    out += head(message.role) + trimmed(message.content) + "<|eot_id|>";
  }
  return out + head("assistant");
}

/// Mistral's formats differ in their spaces and in where the system message goes; the template's
/// own string literals tell.
struct MistralStyle {
  std::string open = "[INST] ", close = " [/INST]";
  std::string before_answer;  // of an assistant's earlier turn
  std::string after_answer = "</s>";
  bool trims_answer = false;
  std::string open_system;   // "[SYSTEM_PROMPT]"; if empty, it goes before a user message:
  bool system_last = false;  // the last one, else the first

  explicit MistralStyle(std::string_view t) {
    if (t.empty()) return;
    const auto quoted = [&](const std::string& text) {
      return has(t, "'" + text + "'") || has(t, '"' + text + '"');
    };
    open = quoted(" [INST] ") ? " [INST] " : quoted("[INST]") ? "[INST]" : "[INST] ";
    close = quoted("[/INST]") ? "[/INST]" : " [/INST]";
    if (has(t, "[SYSTEM_PROMPT]")) {
      open_system = quoted("[SYSTEM_PROMPT] ") ? "[SYSTEM_PROMPT] " : "[SYSTEM_PROMPT]";
    }
    system_last = has(t, "loop.last");
    if (has(t, "\" \" + message[\"content\"]") || has(t, "' ' + message['content']")) {
      before_answer = " ";
    }
    trims_answer = has(t, "message[\"content\"]|trim + eos_token");
    if (has(t, "eos_token + ' '") || has(t, "eos_token + \" \"")) after_answer = "</s> ";
  }
};

std::string mistral(const Messages& messages, std::string_view chat_template,
                    std::string_view bos) {
  const MistralStyle style(chat_template);
  Messages turns;
  const std::string system = take_system(messages, turns);
  std::string out(bos);
  const bool carried = style.open_system.empty() && !system.empty();
  if (!carried && !system.empty()) out += style.open_system + system + "[/SYSTEM_PROMPT]";
  // The user message that carries the system message.
  std::size_t carrier = turns.size();
  for (std::size_t k = 0; k < turns.size() && carried; ++k) {
    if (turns[k].role == "user" && (carrier == turns.size() || style.system_last)) carrier = k;
  }
  for (std::size_t k = 0; k < turns.size(); ++k) {
    const ChatMessage& message = turns[k];
    if (message.role == "assistant") {
      out += style.before_answer +
             (style.trims_answer ? trimmed(message.content) : message.content) + style.after_answer;
    } else {
      out += style.open + (k == carrier ? system + "\n\n" : "") + message.content + style.close;
    }
  }
  return out;
}

std::string phi3(const Messages& messages, std::string_view chat_template, std::string_view bos) {
  std::string out;
  if (has(chat_template, "bos_token")) out += bos;
  // Phi-4-mini's template has no line breaks around the tags.
  const bool tight = has(chat_template, "'|>' + message['content'] + '<|end|>'");
  const std::string line = tight ? "" : "\n";
  for (const ChatMessage& message : messages) {
    out += "<|" + message.role + "|>" + line + message.content + "<|end|>" + line;
  }
  return out + "<|assistant|>" + line;
}

}  // namespace

const char* chat_format_name(ChatFormat format) {
  return kChatFormats[static_cast<std::size_t>(format)];
}

std::optional<ChatFormat> chat_format_named(std::string_view name) {
  const auto* found = std::find(kChatFormats.begin(), kChatFormats.end(), name);
  if (found == kChatFormats.end()) return std::nullopt;
  return static_cast<ChatFormat>(found - kChatFormats.begin());
}

std::optional<ChatFormat> recognise_chat_format(std::string_view t) {
  if (has(t, "<|im_start|>")) {
    // Phi-4 writes <|im_sep|> after the role: another format.
    return has(t, "<|im_sep|>") ? std::nullopt : std::optional(ChatFormat::chatml);
  }
  if (has(t, "<|start_header_id|>")) return ChatFormat::llama3;
  if (has(t, "[INST]")) return has(t, "<<SYS>>") ? ChatFormat::llama2 : ChatFormat::mistral;
  if (has(t, "<|end|>") && (has(t, "<|assistant|>") || has(t, "<|user|>"))) return ChatFormat::phi3;
  return std::nullopt;
}

std::optional<ChatFormat> recognise_chat_format(const Tokenizer& tokenizer) {
  const auto chat_template = tokenizer.chat_template();
  if (!chat_template) return std::nullopt;
  return recognise_chat_format(*chat_template);
}

std::string render_chat(ChatFormat format, const Messages& messages, std::string_view chat_template,
                        std::string_view bos) {
  check(messages);
  const auto bos_or = [&](std::string_view usual) { return bos.empty() ? usual : bos; };
  switch (format) {
    case ChatFormat::none: {
      std::string out;
      for (const ChatMessage& message : messages) out += message.content;
      return out;
    }
    case ChatFormat::chatml:
      return chatml(messages, chat_template, bos);
    case ChatFormat::llama2:
      return llama2(messages, bos_or("<s>"));
    case ChatFormat::llama3:
      return llama3(messages, bos_or("<|begin_of_text|>"));
    case ChatFormat::mistral:
      return mistral(messages, chat_template, bos_or("<s>"));
    case ChatFormat::phi3:
      return phi3(messages, chat_template, bos);
  }
  fail(ErrorCode::internal, "no such chat format");
}

}  // namespace kvatlas::model
