// SPDX-License-Identifier: Apache-2.0
#include "viewer/models/jump.hpp"

#include <algorithm>
#include <charconv>
#include <sstream>
#include <string_view>

#include "base/str.hpp"
#include "viewer/models/fuzzy.hpp"

namespace kvatlas::viewer {

namespace {

std::string trimmed(const std::string& text) {
  const auto first = text.find_first_not_of(" \t\n\r");
  if (first == text.npos) return "";
  return text.substr(first, text.find_last_not_of(" \t\n\r") - first + 1);
}

/// A letter and a number: "q5120".
struct Coordinate {
  char letter = 0;
  std::optional<std::int64_t> number;  // none: too large to be one
};
std::optional<Coordinate> coordinate_of(std::string_view word) {
  if (word.size() < 2) return std::nullopt;
  const char letter = lowered(word.substr(0, 1))[0];
  const auto digits = word.substr(1);
  if (std::string_view("lhqks").find(letter) == std::string_view::npos ||
      digits.find_first_not_of("0123456789") != std::string_view::npos)
    return std::nullopt;
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (error != std::errc()) return Coordinate{letter, std::nullopt};
  return Coordinate{letter, number};
}

struct Bound {
  const char *what, *of;
  std::int64_t count;
};
Bound bound_of(char letter, const JumpContext& context) {
  switch (letter) {
    case 'l':
      return {"layer", "the model", context.layers};
    case 'h':
      return {"query head", "every layer", context.heads};
    case 's':
      return {"sample", "the profile", static_cast<std::int64_t>(context.samples.size())};
    default:
      return {letter == 'q' ? "query token" : "key token", "the sample", context.tokens};
  }
}

/// Coordinates, all of them; nothing if a word is none.
std::optional<JumpAnswer> coordinates(const std::string& text, const JumpContext& context) {
  std::string spaced = text;
  std::replace(spaced.begin(), spaced.end(), '.', ' ');
  std::replace(spaced.begin(), spaced.end(), ',', ' ');
  std::istringstream words(spaced);
  Jump jump;
  std::string title;
  JumpAnswer answer;
  for (std::string word; words >> word;) {
    const auto found = coordinate_of(word);
    if (!found) return std::nullopt;
    const Bound bound = bound_of(found->letter, context);
    if (bound.count <= 0) {
      answer.problem = str("There is no ", bound.what, " to go to: no profile is open.");
      return answer;
    }
    if (!found->number || *found->number >= bound.count) {
      answer.problem = str("There is no ", bound.what, " ", word.substr(1), ": ", bound.of, " has ",
                           bound.count, " (", word[0], "0 to ", word[0], bound.count - 1, ").");
      return answer;
    }
    const auto number = *found->number;
    if (found->letter == 'l') jump.layer = number;
    if (found->letter == 'h') jump.head = number;
    if (found->letter == 'q') jump.query = number;
    if (found->letter == 'k') jump.key = number;
    if (found->letter == 's') jump.sample = static_cast<std::size_t>(number);
    title += str(title.empty() ? "" : ", ", bound.what, " ", number);
  }
  if (title.empty()) return std::nullopt;
  if (jump.query && jump.key && *jump.key > *jump.query) {
    answer.problem = str("Query token ", *jump.query, " does not see key token ", *jump.key,
                         ", which comes after it.");
    return answer;
  }
  jump.title = title;
  answer.jumps = {jump};
  return answer;
}

struct Scored {
  int score = 0;
  Jump jump;
};

class JumpFinder {
 public:
  JumpFinder(const std::string& text, const JumpContext& context)
      : text_(text), wanted_(lowered(text)), context_(context) {}

  JumpAnswer run() {
    names();
    layers();
    std::stable_sort(found_.begin(), found_.end(),
                     [](const Scored& a, const Scored& b) { return a.score > b.score; });
    tokens(text_);
    return answer();
  }

  JumpAnswer run_quoted(const std::string& inside) {
    tokens(inside);
    return answer();
  }

 private:
  void offer(const std::string& name, Jump jump, int bonus) {
    if (const auto score = fuzzy_score(text_, name))
      found_.push_back({*score + bonus, std::move(jump)});
  }

  void names() {
    for (const auto& [id, title] : context_.screens) {
      Jump jump;
      jump.title = title;
      jump.detail = "screen";
      jump.screen = id;
      offer(title + " " + id, jump, lowered(title) == wanted_ || id == wanted_ ? 60 : 10);
    }
    for (const auto& policy : context_.policies) {
      Jump jump;
      jump.title = policy.name;
      jump.detail = "policy";
      jump.screen = policy.screen;
      offer(policy.name, jump, 8);
    }
    for (const auto& task : context_.tasks) {
      Jump jump;
      jump.title = task;
      jump.detail = "task: its samples alone";
      jump.task = task;
      offer(task, jump, 4);
    }
    for (std::size_t i = 0; i < context_.samples.size() && found_.size() < 4 * kMostJumps; ++i) {
      Jump jump;
      jump.title = context_.samples[i];
      jump.detail = str("sample ", i);
      jump.sample = i;
      offer(context_.samples[i], jump, 0);
    }
  }

  /// "lazy" and "not lazy": those after the layer that is chosen come first.
  void layers() {
    for (const auto& [name, of] : context_.predicates) {
      const bool is_not = wanted_ == "not " + lowered(name);
      if (!is_not && wanted_ != lowered(name)) continue;
      std::vector<std::int64_t> chosen;
      for (std::int64_t i = 0; i < context_.layers; ++i) {
        const auto layer = (context_.layer + 1 + i) % context_.layers;
        if ((std::find(of.begin(), of.end(), layer) != of.end()) != is_not) chosen.push_back(layer);
      }
      for (const auto layer : chosen) {
        Jump jump;
        jump.title = str("layer ", layer);
        jump.detail = str(text_, ", ", chosen.size(), " of ", context_.layers, " layers");
        jump.layer = layer;
        found_.push_back({40, jump});
      }
      if (chosen.empty()) problem_ = str("No layer is ", text_, ".");
    }
  }

  void tokens(const std::string& text) {
    const auto wanted = lowered(text);
    if (trimmed(wanted).empty()) return;
    for (std::size_t i = 0; i < context_.token_texts.size() && found_.size() < kMostJumps; ++i) {
      // A word of several tokens is found at its first.
      std::string here = context_.token_texts[i];
      for (std::size_t next = i + 1;
           next < context_.token_texts.size() && next < i + 8 && here.size() < text.size() + 16;
           ++next)
        here += context_.token_texts[next];
      const auto at = lowered(here).find(wanted);
      if (at == here.npos || at >= std::max<std::size_t>(context_.token_texts[i].size(), 1))
        continue;
      Jump jump;
      jump.title = str("token ", i, "  ", printable(here, 40));
      jump.detail = "key token";
      jump.key = static_cast<std::int64_t>(i);
      found_.push_back({0, jump});
    }
  }

  JumpAnswer answer() {
    JumpAnswer answer;
    if (found_.size() > kMostJumps) found_.resize(kMostJumps);
    for (auto& found : found_) answer.jumps.push_back(std::move(found.jump));
    if (!answer.jumps.empty()) return answer;
    answer.problem =
        !problem_.empty()
            ? problem_
            : str("Nothing is called ", quoted(text_),
                  context_.token_texts.empty() ? ", and the profile holds no text of tokens" : "",
                  ". A place is L12.H3, q5120, k17 or s2; else a screen, policy, task, sample",
                  context_.token_texts.empty() ? "" : ", token text",
                  ", or layers such as lazy and not lazy.");
    return answer;
  }

  std::string text_, wanted_, problem_;
  const JumpContext& context_;
  std::vector<Scored> found_;
};

}  // namespace

JumpAnswer find_jumps(const std::string& text, const JumpContext& context) {
  const auto wanted = trimmed(text);
  if (wanted.empty()) return {};
  if (wanted.size() > 200) return {{}, "That is too long to be the name of a place."};
  if (const auto found = coordinates(wanted, context)) return *found;
  JumpFinder finder(wanted, context);
  if (wanted.size() > 2 && wanted.front() == '"' && wanted.back() == '"')
    return finder.run_quoted(wanted.substr(1, wanted.size() - 2));
  return finder.run();
}

std::string place_text(std::int64_t layer, std::int64_t head, std::int64_t query,
                       std::int64_t key) {
  std::string text = str("L", layer, ".H", head);
  if (query >= 0) text += str(" q", query);
  if (key >= 0) text += str(" k", key);
  return text;
}

}  // namespace kvatlas::viewer
