// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include <gtest/gtest.h>

#include "data/prompts.hpp"

namespace kvatlas::data {

/// The one prompt of a line.
inline Prompt parse_prompt(std::string_view line) {
  auto prompts = parse_line(line).prompts;
  EXPECT_EQ(prompts.size(), 1u) << line;
  return prompts.at(0);
}

}  // namespace kvatlas::data
