// SPDX-License-Identifier: Apache-2.0
// A template as tokens and as a tree.
#pragma once

#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "analyzer/jinja/jinja_value_impl.hpp"
#include "base/error.hpp"

namespace kvatlas::model {

inline constexpr std::size_t kMostTemplateBytes = std::size_t{256} << 10;  // real ones have 30 KB
inline constexpr int kDeepestTemplate = 150;                               // levels of its tree

template <class... Parts>
[[noreturn]] void fail_at(int line, ErrorCode code, const Parts&... parts) {
  fail(code, "line ", line, ": ", parts...);
}

enum class JinjaToken { text, output, output_end, tag, tag_end, name, string, number, sign, end };

struct JinjaLexeme {
  JinjaToken token;
  int line;
  std::string text;  // of a string what it means; of a number how it is written
};

/// The tokens of a template, the last of which is `end`. The rules on spaces have been carried out.
std::vector<JinjaLexeme> jinja_lexemes(std::string_view source);

enum class JinjaOp {
  // Expressions.
  constant,
  name,
  list,
  tuple,
  dict,       // key, value, key, value …
  attribute,  // object . text
  item,       // object [ index ]
  slice,      // object [ start : stop : step ], each may be absent
  call,       // callee, arguments
  filter,     // input | text ( arguments ); the input of a filter block is absent
  test,       // input is text ( arguments )
  negate,     // not
  both,       // and
  either,     // or
  choose,     // condition, then, else (may be absent)
  compare,    // first, operand …, with the operators in `words`
  minus,
  plus,
  add,
  subtract,
  multiply,
  divide,
  floor_divide,
  modulo,
  power,
  concatenate,
  // Statements.
  block,  // statements, in the scope that they stand in
  scope,  // a block with a scope of its own
  text,
  output,
  branch,        // condition, body, condition, body … else body
  loop,          // target, iterated, condition or absent, body, else body or absent
  assign,        // target, value
  assign_text,   // target, filter or absent, body
  macro,         // body, a default or absent for each parameter of `words`
  call_block,    // call, caller (a macro)
  filter_block,  // filter, body
  with,          // target, value, target, value … body
  leave,         // break
  next,          // continue
};

struct JinjaNode {
  JinjaOp op;
  int line = 0;
  std::string text;              // a name
  std::vector<JinjaNode*> kids;  // as the operation says; nullptr where absent
  /// Names of arguments (one for each kid, empty for those without), of parameters, or operators.
  std::vector<std::string> words;
  JinjaValue value;  // of a constant
  bool recursive = false;
  bool takes_more = false, takes_named = false, takes_caller = false;  // a macro
  int depth = 1;
};

struct JinjaProgram {
  std::deque<JinjaNode> nodes;
  const JinjaNode* body = nullptr;
};

void parse_jinja(std::string_view source, JinjaProgram& program);

}  // namespace kvatlas::model
