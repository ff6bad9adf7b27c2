// SPDX-License-Identifier: Apache-2.0
// Conversations in OpenAI's form in which functions can be called, and the prompts that ask for the
// next call (docs/tasks.md).
#pragma once

#include <string_view>

#include <nlohmann/json.hpp>

#include "data/prompts.hpp"

namespace kvatlas::data {

/// JSON text with the members of objects in their order. Error(unreadable) if it is not JSON, nests
/// too deeply, or has objects of too many members.
nlohmann::ordered_json parse_ordered(std::string_view text);

/// Makes the prompt one that asks for the calls that the last assistant's message with calls makes:
/// its context, input, answers and metric, the same as messages, and room for the answer.
/// `earlier`, null or a list, has the questions that were asked of the same context before: each an
/// object whose `messages` are the question, the calls that are its answer, and what came of them.
/// Error(unreadable) for what is no such conversation.
void ask_for_calls(Prompt& prompt, const nlohmann::ordered_json& messages,
                   const nlohmann::ordered_json& tools, const nlohmann::ordered_json& earlier);

/// The messages of a prompt that asks for calls: those of its context, of the turns that it
/// follows, and of its question, with arguments as they stand in OpenAI's form, which is text.
nlohmann::ordered_json messages_for_calls(const Prompt& prompt);
/// The same with arguments as objects, which is what chat templates take.
nlohmann::ordered_json template_messages(const Prompt& prompt);

/// The members of a line that ask_for_calls() makes this prompt of: `messages`, with the right
/// answer as their last, and `tools`, and `earlier` if there is any.
nlohmann::ordered_json conversation_members(const Prompt& prompt);

}  // namespace kvatlas::data
