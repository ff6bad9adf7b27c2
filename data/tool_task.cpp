// SPDX-License-Identifier: Apache-2.0
// Calls of functions, whose arguments stand in what earlier calls gave back.
#include <algorithm>
#include <array>

#include "base/str.hpp"
#include "data/tasks_impl.hpp"
#include "data/tool_chat.hpp"

namespace kvatlas::data {
namespace {

using ordered = nlohmann::ordered_json;

constexpr std::array<std::string_view, 12> kVerbs = {"cancel", "confirm", "archive",  "renew",
                                                     "extend", "approve", "reject",   "postpone",
                                                     "reopen", "print",   "transfer", "track"};
constexpr std::array<std::string_view, 16> kMatters = {
    "booking", "invoice",     "shipment",     "contract", "ticket", "refund",  "permit",  "lease",
    "parcel",  "appointment", "subscription", "warranty", "claim",  "payment", "licence", "order"};

/// What a function is told of its matter. The names of its parameters differ from function to
/// function, so they have to be read.
struct Detail {
  std::string_view in_notes;
  std::array<std::string_view, 4> parameters;
  std::string_view type;
  std::array<std::string_view, 8> values;  // empty for numbers, which are drawn
};
constexpr std::array<Detail, 6> kDetails = {
    {{"number", {"number", "reference", "record_id", "code"}, "integer", {}},
     {"city",
      {"city", "town", "place", "location"},
      "string",
      {"Oslo", "Lima", "Cairo", "Kyoto", "Porto", "Quito", "Perth", "Turin"}},
     {"owner",
      {"owner", "contact", "person", "holder"},
      "string",
      {"Clara Berg", "Hugo Lind", "Iris Novak", "Jonas Falk", "Maria Costa", "Peter Wolf",
       "Sara Holm", "Tomas Reyes"}},
     {"month",
      {"month", "period", "due_month", "when"},
      "string",
      {"January", "March", "April", "June", "July", "August", "October", "December"}},
     {"amount", {"amount", "price", "total", "value"}, "integer", {}},
     {"colour",
      {"colour", "label_colour", "folder", "marker"},
      "string",
      {"amber", "black", "green", "ivory", "olive", "purple", "silver", "white"}}}};

struct Drawn {
  std::size_t verb, matter;
};

std::string name_of(const Drawn& function, Random& random) {
  const std::string_view verb = kVerbs[function.verb], matter = kMatters[function.matter];
  switch (random.below(4)) {
    case 0:
      return str(verb, '_', matter);
    case 1:
      return str(matter, '_', verb);
    case 2:
      return str("do_", verb, '_', matter);
    default:
      return str(verb, "_one_", matter);
  }
}

/// A function as the list describes it, what the note on its matter says, and the right call.
struct Made {
  ordered tool, arguments;
  std::string name, note, question;
};

Made made(const Drawn& function, std::int64_t details, Random& random) {
  std::vector<std::size_t> others(kDetails.size() - 1);
  for (std::size_t i = 0; i < others.size(); ++i) others[i] = i + 1;
  random.shuffle(others);
  std::vector<std::size_t> chosen(others.begin(), others.begin() + (details - 1));
  chosen.insert(chosen.begin(), 0);
  const std::string matter(kMatters[function.matter]), verb(kVerbs[function.verb]);
  Made out;
  out.name = name_of(function, random);
  out.note = str("Note on the ", matter, ": ");
  ordered properties = ordered::object(), required = ordered::array();
  for (const auto at : chosen) {
    const Detail& detail = kDetails[at];
    const std::string parameter(detail.parameters[random.below(detail.parameters.size())]);
    std::string value;
    if (detail.type == "integer") {
      value = random_digits(random, at == 0 ? 7 : 3);
      out.arguments[parameter] = std::stoll(value);
    } else {
      value = detail.values[random.below(detail.values.size())];
      out.arguments[parameter] = value;
    }
    out.note += str(at == 0 ? "" : ", ", detail.in_notes, ' ', value);
    properties[parameter] = {{"type", detail.type},
                             {"description", str("the ", matter, "'s ", detail.in_notes)}};
    required.push_back(parameter);
  }
  out.note += '.';
  out.question = str("Now ", verb, " the ", matter, ", with all that the note on it says.");
  std::string does = str(verb, "s one ", matter, ".");
  does[0] = static_cast<char>(does[0] - 'a' + 'A');
  out.tool = {
      {"type", "function"},
      {"function",
       {{"name", out.name},
        {"description", does},
        {"parameters", {{"type", "object"}, {"properties", properties}, {"required", required}}}}}};
  return out;
}

constexpr const char* kReader = "read_page";

ordered reader() {
  return {{"type", "function"},
          {"function",
           {{"name", kReader},
            {"description", "Gives the text of one page."},
            {"parameters",
             {{"type", "object"},
              {"properties", {{"page", {{"type", "integer"}}}}},
              {"required", ordered::array({"page"})}}}}}};
}

/// A call, what came of it, and a word on that: templates let the user speak only behind one.
void add_call(ordered& messages, std::size_t number, const std::string& name,
              const ordered& arguments, const std::string& result, const std::string& word) {
  const std::string id = str("call", 10000 + number);  // as some templates want it: 9 characters
  messages.push_back(
      {{"role", "assistant"},
       {"content", ""},
       {"tool_calls",
        ordered::array({{{"id", id},
                         {"type", "function"},
                         {"function", {{"name", name}, {"arguments", arguments.dump()}}}}})}});
  messages.push_back({{"role", "tool"}, {"tool_call_id", id}, {"name", name}, {"content", result}});
  if (!word.empty()) messages.push_back({{"role", "assistant"}, {"content", word}});
}

ordered said_by_user(const std::string& text) { return {{"role", "user"}, {"content", text}}; }

/// The text in so many pages, each up to the end of a sentence.
std::vector<std::string> pages_of(const std::string& text, std::size_t count) {
  const auto ends = sentence_ends(text);
  std::vector<std::string> pages;
  std::size_t done = 0;
  for (std::size_t i = 1; i <= count; ++i) {
    const std::size_t wanted = text.size() * i / count;
    const std::size_t end =
        i == count ? text.size() : *std::lower_bound(ends.begin(), ends.end(), wanted);
    const std::size_t begin = std::min(text.find_first_not_of(" \n", done), end);
    pages.push_back(text.substr(begin, end - begin));
    done = end;
  }
  return pages;
}

}  // namespace

Prompt make_tools(const TaskRequest& request, const Options& options, const CountTokens& count) {
  constexpr std::int64_t kTokensAFunction = 256, kMostFunctions = 128, kTokensAPage = 512,
                         kMostPages = 64;
  const std::int64_t turns = options.number("turns"), details = options.number("arguments");
  const std::int64_t notes = std::max(options.number("notes"), turns);

  // The functions that notes are about come first, each for a matter of its own; the seed alone
  // chooses them. The others have the same verbs and matters.
  Random random(request.seed, "tools"), depths(request.seed, "depths"),
      others(request.seed, "other tools");
  std::vector<std::size_t> matters(kMatters.size());
  for (std::size_t i = 0; i < matters.size(); ++i) matters[i] = i;
  random.shuffle(matters);
  std::vector<Drawn> chosen, rest;
  for (std::int64_t i = 0; i < notes; ++i)
    chosen.push_back({random.below(kVerbs.size()), matters[static_cast<std::size_t>(i)]});
  for (std::size_t verb = 0; verb < kVerbs.size(); ++verb)
    for (std::size_t matter = 0; matter < kMatters.size(); ++matter)
      if (std::none_of(chosen.begin(), chosen.end(),
                       [&](const Drawn& one) { return one.verb == verb && one.matter == matter; }))
        rest.push_back({verb, matter});
  others.shuffle(rest);
  std::vector<Made> all;
  std::vector<Needle> needles;
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    all.push_back(made(chosen[i], details, random));
    needles.push_back({i == 0 ? request.depth : depths.share(), all.back().note});
  }
  for (std::int64_t i = notes; i < kMostFunctions; ++i)
    all.push_back(made(rest[static_cast<std::size_t>(i - notes)], details, others));
  std::size_t longest = 0;  // the turn with the longest question, which has to fit
  for (std::size_t i = 1; i < static_cast<std::size_t>(turns); ++i)
    if (all[i].question.size() > all[longest].question.size()) longest = i;

  const auto haystack = Haystack::named(options.word("haystack"), request.seed);
  const auto asking = [&](std::int64_t functions, std::int64_t pages, std::int64_t pieces,
                          std::size_t turn) {
    std::vector<ordered> tools = {reader()};
    for (std::int64_t i = 0; i < functions; ++i)
      tools.push_back(all[static_cast<std::size_t>(i)].tool);
    Random(request.seed, "order of tools").shuffle(tools);
    ordered messages = ordered::array(), earlier = ordered::array();
    const auto texts =
        pages_of(hide(haystack.first(pieces), needles), static_cast<std::size_t>(pages));
    for (std::size_t i = 0; i < texts.size(); ++i) {
      messages.push_back(said_by_user(
          i > 0 ? str("Read page ", i + 1, ".")
                : "Notes are hidden in the pages of a long text. Remember all of them, for I will "
                  "ask you to act on them. Read page 1."));
      add_call(messages, i, kReader, {{"page", i + 1}}, texts[i], "I have read it.");
    }
    const auto ask = [&](ordered& to, std::size_t at, const char* word) {
      to.push_back(said_by_user(all[at].question));
      add_call(to, texts.size() + at, all[at].name, all[at].arguments, "done", word);
    };
    for (std::size_t i = 0; i < turn; ++i) {
      ordered said = ordered::array();
      ask(said, i, "It is done.");
      earlier.push_back({{"messages", std::move(said)}});
    }
    ask(messages, turn, "");
    Prompt prompt;
    ask_for_calls(prompt, messages, tools, earlier);
    return prompt;
  };

  // What the least prompt leaves is shared out to functions, pages and text.
  const std::int64_t given = options.number("functions"), least = std::max(given, notes);
  const std::int64_t spare =
      std::max<std::int64_t>(0, request.length - count(asking(least, 1, 1, longest)));
  const std::int64_t functions =
      given > 0 ? least : std::min(kMostFunctions, least + spare / kTokensAFunction);
  const std::int64_t pages = std::min(kMostPages, 1 + spare / kTokensAPage);
  // All turns are asked of one text, into which the longest question fits.
  Prompt fitted = fit_length(request.length, 1, count, [&](std::int64_t pieces) {
    return asking(functions, pages, pieces, longest);
  });
  Prompt prompt = asking(functions, pages, 1, static_cast<std::size_t>(request.turn - 1));
  prompt.context = std::move(fitted.context);
  prompt.context_messages = std::move(fitted.context_messages);
  return prompt;
}

}  // namespace kvatlas::data
