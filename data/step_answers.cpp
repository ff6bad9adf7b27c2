// SPDX-License-Identifier: Apache-2.0
// Answers that are worked out: a value for each step, or a final one.
#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <optional>
#include <string>
#include <vector>

#include "data/characters.hpp"
#include "data/metrics.hpp"

namespace kvatlas::data {
namespace {

std::string in_small_ascii(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return out;
}

/// The words and numbers of a value, with a blank between: "1,234." is "1234", "red, Blue" is
/// "red blue".
std::string plain_value(std::string_view value) {
  std::string out;
  for (std::size_t i = 0; i < value.size(); ++i) {
    const char c = value[i];
    const bool in_number =
        i > 0 && i + 1 < value.size() && is_digit(value[i - 1]) && is_digit(value[i + 1]);
    const bool minus = c == '-' && i + 1 < value.size() && is_digit(value[i + 1]) &&
                       (i == 0 || value[i - 1] == ' ');
    if (c == ',' && in_number) continue;
    if (std::isalnum(static_cast<unsigned char>(c)) || (c & 0x80) != 0 || minus ||
        (c == '.' && in_number))
      out += c;
    else if (!out.empty() && out.back() != ' ')
      out += ' ';
  }
  while (!out.empty() && out.back() == ' ') out.pop_back();
  return in_small_ascii(out);
}

std::string_view up_to(std::string_view text, std::string_view any_of) {
  return text.substr(0, text.find_first_of(any_of));
}

/// Where "step N" stands from `from` on, with what stands behind it; no number: nowhere.
struct StepMark {
  std::size_t begin = 0, end = 0;
  std::int64_t number = 0;
};
StepMark next_step(std::string_view small, std::size_t from) {
  constexpr std::string_view kStep = "step ";
  for (auto at = small.find(kStep, from); at != small.npos; at = small.find(kStep, at + 1)) {
    StepMark mark{at, at + kStep.size(), 0};
    const char* const first = small.data() + mark.end;
    const auto read = std::from_chars(first, small.data() + small.size(), mark.number);
    if (read.ec != std::errc() || mark.number < 1) continue;
    mark.end += static_cast<std::size_t>(read.ptr - first);
    return mark;
  }
  return {small.size(), small.size(), 0};
}

/// What the text says of a step, the first time that it says it. The text may begin behind "Step
/// 1:".
std::string_view value_of_step(std::string_view generated, std::int64_t step) {
  const std::string small = in_small_ascii(generated);
  StepMark mark = next_step(small, 0);
  std::string_view value;
  bool found = false;
  if (step == 1 && mark.number != 1) {
    value = generated.substr(0, mark.begin);
    found = true;
  }
  for (; mark.number > 0 && !found; mark = next_step(small, mark.end)) {
    if (mark.number != step) continue;
    const auto next = next_step(small, mark.end);
    value = generated.substr(mark.end, next.begin - mark.end);
    found = true;
  }
  value.remove_prefix(std::min(value.find_first_not_of(" :*\t"), value.size()));
  value = up_to(value, "\n");
  if (const auto equals = value.rfind('='); equals != value.npos) value.remove_prefix(equals + 1);
  return value;
}

std::optional<double> number_in(std::string_view plain) {
  double number = 0;
  const auto read = std::from_chars(plain.data(), plain.data() + plain.size(), number);
  if (read.ec != std::errc() || read.ptr != plain.data() + plain.size()) return std::nullopt;
  return number;
}

/// The numbers among the words of a plain value.
std::vector<double> numbers_among(std::string_view plain) {
  std::vector<double> numbers;
  while (!plain.empty()) {
    const std::string_view word = up_to(plain, " ");
    if (const auto number = number_in(word)) numbers.push_back(*number);
    plain.remove_prefix(std::min(word.size() + 1, plain.size()));
  }
  return numbers;
}

/// What stands behind the last mark of a final answer; none: there is no mark.
std::optional<std::string_view> marked_answer(std::string_view generated) {
  constexpr std::array<std::string_view, 4> kMarks = {"answer:", "answer is", "####", "\\boxed{"};
  const std::string small = in_small_ascii(generated);
  std::optional<std::size_t> behind;
  for (const auto mark : kMarks)
    if (const auto at = small.rfind(mark); at != small.npos)
      behind = std::max(behind.value_or(0), at + mark.size());
  if (!behind) return std::nullopt;
  std::string_view value = generated.substr(*behind);
  value.remove_prefix(std::min(value.find_first_not_of(" :*$\n"), value.size()));
  return up_to(value, "\n}");
}

}  // namespace

double right_step(std::string_view generated, std::int64_t step, std::string_view answer) {
  const std::string said = plain_value(value_of_step(generated, step));
  return !said.empty() && said == plain_value(answer) ? 1 : 0;
}

double right_final(std::string_view generated, std::string_view answer) {
  const auto marked = marked_answer(generated);
  const std::string right = plain_value(answer), said = plain_value(marked.value_or(generated));
  const auto number = number_in(right);
  if (!number) return marked && said == right ? 1 : 0;
  const auto numbers = numbers_among(said);
  if (numbers.empty()) return 0;
  return (marked ? numbers.front() : numbers.back()) == *number ? 1 : 0;
}

}  // namespace kvatlas::data
