// SPDX-License-Identifier: Apache-2.0
// How many texts prompts are made of (PromptDescription::group).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace kvatlas {

/// "1 layer", "2 layers".
std::string count_of(std::int64_t count, const char* one, const char* many);
/// How many different texts prompts of these groups are made of. Prompts without a group have a
/// text of their own.
std::size_t count_texts(std::span<const std::string> groups);
/// " of 10 texts", to stand behind "20 prompts". Empty if each prompt has a text of its own, or if
/// `texts` is 0, which stands for a number that is not known.
std::string of_texts(std::size_t prompts, std::size_t texts);

}  // namespace kvatlas
