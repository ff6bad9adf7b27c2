// SPDX-License-Identifier: Apache-2.0
// Tasks of RULER, InfiniteBench, LooGLE and SCBench, whose files name neither metric nor answer
// length.
#pragma once

#include <cstdint>
#include <string_view>

namespace kvatlas::data {

struct FieldTask {
  std::string_view name;
  std::string_view metric;         // as in Prompt::metric
  std::int64_t answer_tokens = 0;  // 0: its files say so
  std::string_view language = {};
};

/// The task of that name; null if there is none.
const FieldTask* field_task(std::string_view name);

}  // namespace kvatlas::data
