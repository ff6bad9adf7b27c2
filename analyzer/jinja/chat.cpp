// SPDX-License-Identifier: Apache-2.0
#include "analyzer/jinja/chat.hpp"

#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/plain_text.hpp"

namespace kvatlas::model {

namespace {

struct NamedFormat {
  const char* name;
  const char* text;  // the template
};

// A tag at the end of a line swallows the newline behind it. Where a family has no turn for the
// system message, the first user's message carries it.
constexpr NamedFormat kFormats[] = {
    {"none", "{% for m in messages %}{{ m.content }}{% endfor %}"},
    {"chatml",
     "{% for m in messages %}{{ '<|im_start|>' ~ m.role ~ '\\n' ~ m.content ~ '<|im_end|>\\n' }}"
     "{% endfor %}{{ '<|im_start|>assistant\\n' }}"},
    {"deepseek",
     "{{ '<｜begin▁of▁sentence｜>' }}{% for m in messages %}"
     "{% if m.role == 'system' %}{{ m.content }}"
     "{% elif m.role == 'user' %}{{ '<｜User｜>' ~ m.content }}"
     "{% else %}{{ '<｜Assistant｜>' ~ m.content ~ '<｜end▁of▁sentence｜>' }}{% endif %}"
     "{% endfor %}{{ '<｜Assistant｜>' }}"},
    {"gemma",
     "{{ '<bos>' }}{% set ns = namespace(system='') %}{% for m in messages %}"
     "{% if m.role == 'system' %}{% set ns.system = m.content ~ '\\n\\n' %}{% else %}"
     "{{ '<start_of_turn>' ~ ('model' if m.role == 'assistant' else m.role) ~ '\\n' ~ ns.system ~ "
     "m.content | trim ~ '<end_of_turn>\\n' }}{% set ns.system = '' %}{% endif %}"
     "{% endfor %}{{ '<start_of_turn>model\\n' }}"},
    {"glm4",
     "{{ '[gMASK]<sop>' }}{% for m in messages %}{{ '<|' ~ m.role ~ '|>\\n' ~ m.content }}"
     "{% endfor %}{{ '<|assistant|>' }}"},
    {"gpt-oss",
     "{% for m in messages %}{% if m.role == 'assistant' %}"
     "{{ '<|start|>assistant<|channel|>final<|message|>' ~ m.content ~ '<|end|>' }}{% else %}"
     "{{ '<|start|>' ~ ('developer' if m.role == 'system' else m.role) ~ '<|message|>' ~ "
     "('# Instructions\\n\\n' if m.role == 'system') ~ m.content ~ "
     "('\\n\\n' if m.role == 'system') ~ '<|end|>' }}{% endif %}"
     "{% endfor %}{{ '<|start|>assistant' }}"},
    {"granite",
     "{% for m in messages %}{{ '<|start_of_role|>' ~ m.role ~ '<|end_of_role|>' ~ m.content ~ "
     "'<|end_of_text|>\\n' }}{% endfor %}{{ '<|start_of_role|>assistant<|end_of_role|>' }}"},
    {"llama2",
     "{% set ns = namespace(system='') %}{% for m in messages %}"
     "{% if m.role == 'system' %}{% set ns.system = '<<SYS>>\\n' ~ m.content ~ "
     "'\\n<</SYS>>\\n\\n' %}{% elif m.role == 'assistant' %}{{ ' ' ~ m.content | trim ~ ' </s>' }}"
     "{% else %}{{ '<s>[INST] ' ~ (ns.system ~ m.content) | trim ~ ' [/INST]' }}"
     "{% set ns.system = '' %}{% endif %}{% endfor %}"},
    {"llama3",
     "{{ '<|begin_of_text|>' }}{% for m in messages %}{{ '<|start_header_id|>' ~ m.role ~ "
     "'<|end_header_id|>\\n\\n' ~ m.content | trim ~ '<|eot_id|>' }}{% endfor %}"
     "{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}"},
    {"llama4",
     "{{ '<|begin_of_text|>' }}{% for m in messages %}{{ '<|header_start|>' ~ m.role ~ "
     "'<|header_end|>\\n\\n' ~ m.content | trim ~ '<|eot|>' }}{% endfor %}"
     "{{ '<|header_start|>assistant<|header_end|>\\n\\n' }}"},
    {"mistral",
     "{{ '<s>' }}{% set ns = namespace(system='') %}{% for m in messages %}"
     "{% if m.role == 'system' %}{% set ns.system = m.content ~ '\\n\\n' %}"
     "{% elif m.role == 'assistant' %}{{ m.content ~ '</s>' }}"
     "{% else %}{{ '[INST] ' ~ ns.system ~ m.content ~ ' [/INST]' }}{% set ns.system = '' %}"
     "{% endif %}{% endfor %}"},
    {"phi3",
     "{% for m in messages %}{{ '<|' ~ m.role ~ '|>\\n' ~ m.content ~ '<|end|>\\n' }}"
     "{% endfor %}{{ '<|assistant|>\\n' }}"},
    {"phi4",
     "{% for m in messages %}{{ '<|im_start|>' ~ m.role ~ '<|im_sep|>' ~ m.content ~ "
     "'<|im_end|>' }}{% endfor %}{{ '<|im_start|>assistant<|im_sep|>' }}"},
};

std::string template_text(std::string_view name, const Tokenizer* tokenizer) {
  if (name == "auto") {
    auto own = tokenizer != nullptr ? tokenizer->chat_template() : std::nullopt;
    if (!own)
      fail(ErrorCode::usage,
           "--chat: the model has no chat template; name a format: ", join(Chat::format_names()));
    return std::move(*own);
  }
  for (const NamedFormat& format : kFormats)
    if (format.name == name) return format.text;
  fail(ErrorCode::usage, "--chat ", quoted(name),
       ": use auto, or a format: ", join(Chat::format_names()));
}

constexpr const char* kPlace = "the model's chat template";

}  // namespace

std::vector<std::string> Chat::format_names() {
  std::vector<std::string> names;
  for (const NamedFormat& format : kFormats) names.emplace_back(format.name);
  return names;
}

Chat::Chat(std::string_view name, const Tokenizer* tokenizer)
    : name_(name), template_([&] {
        const std::string text = template_text(name, tokenizer);
        return in_context(kPlace, [&] { return JinjaTemplate(text); });
      }()) {
  if (name == "auto") special_tokens_ = tokenizer->special_tokens();
}

std::string Chat::render(const std::vector<ChatMessage>& messages) const {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const ChatMessage& message : messages)
    list.push_back({{"role", message.role}, {"content", message.content}});
  return render(list, nullptr);
}

bool Chat::knows_tools() const {
  constexpr const char* kName = "kvatlas_function";
  const nlohmann::ordered_json message = {{"role", "user"}, {"content", "U"}},
                               parameters = {{"type", "object"},
                                             {"properties", nlohmann::ordered_json::object()}},
                               function = {{"name", kName},
                                           {"description", "D"},
                                           {"parameters", parameters}},
                               tool = {{"type", "function"}, {"function", function}};
  try {
    return render(nlohmann::ordered_json::array({message}), nlohmann::ordered_json::array({tool}))
               .find(kName) != std::string::npos;
  } catch (const Error&) {
    return false;  // it says why where it is rendered in earnest
  }
}

std::string Chat::render(const nlohmann::ordered_json& messages,
                         const nlohmann::ordered_json& tools) const {
  // What transformers gives to every template; documents are none.
  nlohmann::ordered_json variables = {{"tools", tools},
                                      {"documents", nullptr},
                                      {"add_generation_prompt", true},
                                      {"messages", messages}};
  for (const auto& [role, token] : special_tokens_) variables[role] = token;
  return in_context(kPlace, [&] { return template_.render(variables); });
}

}  // namespace kvatlas::model
