// SPDX-License-Identifier: Apache-2.0
// Pieces of Jinja beside what jinja2 makes of them (data/chat_cases.json, by
// support/make_chat_cases.py); what a message says; and templates that want to do harm.
#include "analyzer/jinja/jinja.hpp"

#include <chrono>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "tests/support/places.hpp"

namespace kvatlas::model {
namespace {

using nlohmann::ordered_json;
using testing::HasSubstr;

const ordered_json& cases() {
  static const ordered_json all = ordered_json::parse(std::ifstream(
      kvatlas::testing_support::source_folder() / "tests/unit/model/data/chat_cases.json"));
  return all;
}

TEST(Jinja, PiecesAreRenderedAsInPython) {
  std::size_t refused = 0;
  for (const auto& piece : cases().at("pieces")) {
    const auto text = piece.at("template").get<std::string>();
    SCOPED_TRACE(text);
    if (piece.at("text").is_null()) {
      EXPECT_THROW(JinjaTemplate(text).render(cases().at("variables")), Error);
      ++refused;
    } else {
      EXPECT_EQ(JinjaTemplate(text).render(cases().at("variables")),
                piece.at("text").get<std::string>());
    }
  }
  EXPECT_EQ(cases().at("pieces").size(), 79u);
  EXPECT_EQ(refused, 29u);
}

TEST(Jinja, EndsOfLinesAreOneNewlineAndTheLastIsDropped) {
  EXPECT_EQ(JinjaTemplate("a\r\nb\rc\n").render({}), "a\nb\nc");
  EXPECT_EQ(JinjaTemplate("a\n\n").render({}), "a\n");
  EXPECT_EQ(JinjaTemplate("").render({}), "");
  EXPECT_EQ(JinjaTemplate("{% if 1 %}\n  {% if 1 %}\nx\n  {% endif %}\n{% endif %}").render({}),
            "x\n");
  EXPECT_EQ(JinjaTemplate("a\n  {# b #}\nc {{ 1 }}\nd").render({}), "a\nc 1\nd");
}

TEST(Jinja, WhatATemplateSetsDoesNotReachTheNextRun) {
  const JinjaTemplate counts("{{ n }}{% set n = 2 %}{{ n }}");
  for (int run = 0; run < 2; ++run) EXPECT_EQ(counts.render({{"n", 1}}), "12");
}

std::string complaint(const std::string& text, ErrorCode code) {
  try {
    JinjaTemplate(text).render({{"list", {1, 2}}, {"text", "abc"}});
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << text.substr(0, 100);
    EXPECT_LT(std::string(error.what()).size(), 600u);
    return error.what();
  }
  ADD_FAILURE() << "no error: " << text.substr(0, 100);
  return "";
}

TEST(Jinja, WhatIsLackingIsNamedWithItsLine) {
  const std::pair<const char*, const char*> lacking[] = {
      {"\n{{ text | xmlattr }}", "line 2: the filter 'xmlattr' is not supported"},
      {"\n\n{{ text is filter }}", "line 3: the test 'filter' is not supported"},
      {"{% include 'x' %}", "line 1: the tag {% include %} is not supported"},
      {"a\n{%- import 'x' as y %}", "line 2: the tag {% import %} is not supported"},
      {"{{ text.zfill(3) }}", "line 1: the method zfill() of a text is not supported"},
      {"{{ '%5.2f' % 1.5 }}", "line 1: of what '%' formats"},
      {"{{ '{:>5}'.format(1) }}", "the field {:>5} of format()"},
      {"{{ text | tojson(default=1) }}", "the filter 'tojson' has no argument 'default'"},
      {"{{ range }}", "a value of type function has no text"},
      {"{{ strftime_now('%s') }}", "'%s' in strftime_now()"},
      {"{{ '\\N{DASH}' }}", "characters by name"},
      {"{{ 99999999999999999999 }}", "is too large"}};
  for (const auto& [text, words] : lacking)
    EXPECT_THAT(complaint(text, ErrorCode::unsupported), HasSubstr(words));
}

TEST(Jinja, WhatIsWrongIsSaidWithItsLine) {
  const std::pair<const char*, const char*> wrong[] = {
      {"\n{{ raise_exception('one\ntwo') }}",
       "line 2: the template refuses the conversation: one?two"},
      {"{% if 1 %}\n{{ nothing.at_all }}\n{% endif %}", "line 2: 'nothing' is undefined"},
      {"{% macro f(a) %}{% endmacro %}\n{{ f(b=1) }}", "line 2: the macro 'f' has no argument 'b'"},
      {"{% macro f() %}{{ f() }}{% endmacro %}\n{{ f() }}", "calls itself too deeply"},
      {"{{ 9223372036854775807 + 1 }}", "a number is too large"},
      {"{{ 10 ** 30 }}", "a number is too large"},
      {"{{ loop.index }}", "'loop' is undefined"},
      {"{% for x in list %}{{ loop(list) }}{% endfor %}", "says 'recursive'"},
      {"{% if 1 %}{% endfor %}", "{% endif %} is expected, not {% endfor %}"},
      {"{{ a b }}", "'}}' is expected, not 'b'"},
      {"{{ 1 $ 2 }}", "'$' is not expected here"},
      {"{{ '\\ud800' }}", "names no character"},
      {"{{ f(a=1, 2) }}", "an argument without a name"},
      {"{% call 1 %}{% endcall %}", "{% call %} needs a call"}};
  for (const auto& [text, words] : wrong)
    EXPECT_THAT(complaint(text, ErrorCode::unreadable), HasSubstr(words));
}

std::string repeated(const std::string& text, int times) {
  std::string out;
  while (times-- > 0) out += text;
  return out;
}

TEST(Jinja, HostileTemplatesEndSoon) {
  const std::string twice = "{% set ns = namespace(x='ab') %}{% for i in range(99) %}";
  const std::pair<std::string, const char*> hostile[] = {
      // Nesting.
      {"{{ " + repeated("(", 60'000) + "1" + repeated(")", 60'000) + "}}", "nested deeper"},
      {"{{ " + repeated("[", 60'000) + repeated("]", 60'000) + "}}", "nested deeper"},
      {"{{ " + repeated("-", 200'000) + "1 }}", "nested deeper"},
      {"{{ " + repeated("not ", 60'000) + "1 }}", "nested deeper"},
      {"{{ " + repeated("1+", 60'000) + "1 }}", "nested deeper"},
      {"{{ x" + repeated(".x", 60'000) + " }}", "nested deeper"},
      {"{{ x" + repeated("|trim", 30'000) + " }}", "nested deeper"},
      {"{{ " + repeated("1 if 1 else ", 20'000) + "1 }}", "nested deeper"},
      {repeated("{% if 1 %}", 20'000), "nested deeper"},
      {repeated("{% for x in y %}", 10'000), "nested deeper"},
      {repeated("{% macro f() %}", 10'000), "nested deeper"},
      // Time and memory.
      {repeated("{% for x in range(99999) %}", 4) + "{{ x }}" + repeated("{% endfor %}", 4),
       "runs too long"},
      {twice + "{% set ns.x = ns.x + ns.x %}{% endfor %}", "makes too much"},
      {twice + "{% set ns.x = ns.x | replace('b', ns.x) %}{% endfor %}", "makes too much"},
      {twice + "{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x }}", "makes too much"},
      {twice + "{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x | tojson }}", "makes too much"},
      {twice + "{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x == [ns.x[0], ns.x[1]] }}",
       "makes too much"},
      {"{{ 'a' * 9223372036854775807 }}", "makes too much"},
      {"{{ [1] * 9223372036854775807 }}", "makes too much"},
      {"{{ ('a' * 9999999) | list }}", "makes too much"},
      {"{{ 'a' | indent('b' * 9999999, first=true) | list }}", "makes too much"},
      {"{% set ns = namespace(x=1) %}{% for i in range(200) %}{% set ns.x = [ns.x] %}{% endfor %}"
       "{{ ns.x }}",
       "a value is nested deeper"},
      {"{% macro a(n) %}{% for i in range(9) %}{{ a(n - 1) if n }}{% endfor %}{% endmacro %}"
       "{{ a(9) }}",
       "runs too long"},
      {"{% for x in list recursive %}{{ loop(list) }}{% endfor %}", "calls itself too deeply"},
      {"{% macro a() %}{{ caller() }}{% endmacro %}{% macro b() %}{% call a() %}{{ b() }}"
       "{% endcall %}{% endmacro %}{{ b() }}",
       "calls itself too deeply"},
      {std::string(300'000, 'x'), "at most"}};
  for (const auto& [text, words] : hostile) {
    SCOPED_TRACE(text.substr(0, 80));
    const auto start = std::chrono::steady_clock::now();
    EXPECT_THAT(complaint(text, ErrorCode::unreadable), HasSubstr(words));
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
  }
}

TEST(Jinja, LongConversationsStayWithinTheBounds) {
  ordered_json messages = ordered_json::array();
  for (int turn = 0; turn < 3000; ++turn)
    messages.push_back({{"role", turn % 2 == 0 ? "user" : "assistant"},
                        {"content", std::string(2000, 'x') + "</think> \n answer"}});
  const JinjaTemplate strips(
      "{% for m in messages %}{% set text = m.content.split('</think>')[-1].strip() %}"
      "{{ m.role ~ ': ' ~ m.content | trim ~ text }}{% endfor %}");
  EXPECT_GT(strips.render({{"messages", messages}}).size(), 6'000'000u);
}

TEST(Jinja, TextsThatAreNoTextsPassThrough) {
  const std::string odd = "a\xff\xe4\xbd \xf0\x9f";
  EXPECT_EQ(JinjaTemplate("{{ x }}{{ x | trim }}{{ x[::-1] | length }}").render({{"x", odd}}),
            odd + odd + "5");
}

}  // namespace
}  // namespace kvatlas::model
