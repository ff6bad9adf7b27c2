// SPDX-License-Identifier: Apache-2.0
#include "viewer/models/kept_tokens.hpp"

#include <algorithm>
#include <cmath>
#include <string_view>

#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/json_text.hpp"
#include "base/mapped_file.hpp"
#include "base/str.hpp"
#include "viewer/models/model_axes.hpp"
#include "viewer/models/token_texts.hpp"

namespace kvatlas::viewer {
namespace {

using nlohmann::json;

constexpr std::size_t kMostLineBytes = std::size_t{256} << 20U;
constexpr std::int64_t kMostTokens = std::int64_t{1} << 21;  // of a prompt, and of an answer

std::string_view text_of(const MappedFile& file) {
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

/// Calls `use(line, number)` for each line that holds more than blanks, until one says false.
template <class Use>
void for_each_line(std::string_view text, Use use) {
  std::size_t number = 0;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = text.substr(begin, end - begin);
    begin = end + 1;
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    if (!use(line, number)) return;
  }
}

bool is_run(const json& line) { return line.is_object() && line.contains("cache_lengths"); }

/// A token's position, or how many there are.
std::int64_t tokens_in(const json& value) {
  if (!value.is_number_integer())
    fail(ErrorCode::unreadable, "it has ",
         quoted(value.is_primitive() ? value.dump() : value.type_name()),
         " where a number of tokens stands");
  return value.get<std::int64_t>();
}

KeptRun::Held held_of(const json& positions, std::int64_t read, KeptTokens& of) {
  KeptRun::Held held{read, {}};
  if (of.layers == 0) {
    of.layers = std::ssize(positions);
    of.kv_heads = of.layers > 0 ? std::ssize(positions.at(0)) : 0;
  }
  if (of.layers == 0 || of.kv_heads == 0 || std::ssize(positions) != of.layers)
    fail(ErrorCode::unreadable, "its positions are not those of ", of.layers, " layers");
  for (const json& layer : positions) {
    if (!layer.is_array() || std::ssize(layer) != of.kv_heads)
      fail(ErrorCode::unreadable, "its positions are not those of ", of.kv_heads, " KV heads");
    for (const json& head : layer) {
      auto& ranges = held.heads.emplace_back();
      for (const json& range : head) {
        const KeptRun::Tokens one{tokens_in(range.at(0)), tokens_in(range.at(1))};
        if (one.first < (ranges.empty() ? 0 : ranges.back().end) || one.end <= one.first ||
            one.end > read)
          fail(ErrorCode::unreadable, "its positions do not ascend from 0 to ", read);
        ranges.push_back(one);
      }
    }
  }
  return held;
}

std::vector<std::string> pieces_of(const json& line, const char* member) {
  std::vector<std::string> out;
  if (const auto found = line.find(member); found != line.end())
    for (const json& piece : *found) out.push_back(piece.get<std::string>());
  return out;
}

KeptRun run_of(const json& line, std::int64_t prompt_tokens, KeptTokens& of) {
  if (!line.contains("positions"))
    fail(ErrorCode::unreadable, "it has no positions, which --positions adds");
  KeptRun run{line.at("policy").get<std::string>(), pieces_of(line, "pieces"), 0, {}};
  const std::int64_t generated = std::ssize(line.at("tokens"));
  if (generated < 1 || generated > kMostTokens)
    fail(ErrorCode::unreadable, "it has ", generated, " tokens that were generated");
  // The last one was generated, but not read.
  run.read = prompt_tokens + generated - 1;
  const std::int64_t cut = tokens_in(line.at("cut_after"));
  run.held.push_back(held_of(line.at("positions"), cut, of));
  const auto add = [&](std::int64_t read, const json& positions) {
    if (read < run.held.back().read || read > prompt_tokens + generated)
      fail(ErrorCode::unreadable, "its cuts do not follow each other");
    run.held.push_back(held_of(positions, read, of));
  };
  if (cut < 0 || cut > prompt_tokens + generated)
    fail(ErrorCode::unreadable, "its cut is behind its ", prompt_tokens + generated, " tokens");
  if (const auto later = line.find("later_cuts"); later != line.end())
    for (const json& one : *later) add(tokens_in(one.at("after")), one.at("positions"));
  if (const auto end = line.find("end_positions"); end != line.end())
    add(std::max(run.read, run.held.back().read), *end);
  return run;
}

void add_line(const json& line, KeptTokens& to) {
  if (!is_run(line)) fail(ErrorCode::unreadable, "it says nothing of a prompt and a policy");
  const auto id = line.at("id").get<std::string>();
  const auto tokens = tokens_in(line.at("prompt_tokens"));
  if (tokens < 1 || tokens > kMostTokens)
    fail(ErrorCode::unreadable, "its prompt has ", tokens, " tokens");
  if (to.prompts.empty() || to.prompts.back().id != id) to.prompts.push_back({id, tokens, {}, {}});
  KeptPrompt& prompt = to.prompts.back();
  if (prompt.tokens != tokens)
    fail(ErrorCode::unreadable, "its prompt has ", tokens, " tokens, and above ", prompt.tokens);
  if (prompt.pieces.empty()) prompt.pieces = pieces_of(line, "prompt_pieces");
  prompt.runs.push_back(run_of(line, tokens, to));
}

/// The list that says what is held after `read` tokens.
const KeptRun::Held& held_after(const KeptRun& run, std::int64_t read) {
  const auto after =
      std::upper_bound(run.held.begin(), run.held.end(), read,
                       [](std::int64_t at, const KeptRun::Held& held) { return at < held.read; });
  return after == run.held.begin() ? run.held.front() : *(after - 1);
}

}  // namespace

std::int64_t KeptPrompt::most_read() const {
  std::int64_t most = tokens;
  for (const auto& run : runs) most = std::max(most, run.read);
  return most;
}

bool holds_kept_tokens(const std::filesystem::path& path) {
  const MappedFile file = MappedFile::open(path);
  bool holds = false;
  for_each_line(text_of(file), [&](std::string_view line, std::size_t) {
    try {
      holds = line.size() <= kMostLineBytes && is_run(parse_json(line));
    } catch (const Error&) {
      holds = false;  // such as the first line of a policy document
    }
    return false;
  });
  return holds;
}

KeptTokens parse_kept_tokens(std::string_view text, const std::string& name) {
  KeptTokens kept;
  for_each_line(text, [&](std::string_view line, std::size_t number) {
    try {
      if (line.size() > kMostLineBytes)
        fail(ErrorCode::unreadable, "it has ", line.size(), " bytes");
      add_line(parse_json(line), kept);
    } catch (const json::exception& error) {
      fail(ErrorCode::unreadable, name, ": line ", number, ": ", json_complaint(error));
    } catch (const Error& error) {
      fail(ErrorCode::unreadable, name, ": line ", number, ": ", error.what());
    }
    return true;
  });
  if (kept.prompts.empty()) fail(ErrorCode::unreadable, name, " has no lines");
  return kept;
}

KeptTokens read_kept_tokens(const std::filesystem::path& path) {
  const MappedFile file = MappedFile::open(path);
  KeptTokens kept = parse_kept_tokens(text_of(file), path.string());
  file.require_intact();
  return kept;
}

std::vector<double> shares_of_heads(const KeptRun& run, std::int64_t read) {
  const KeptRun::Held& held = held_after(run, read);
  std::vector<double> shares;
  for (const auto& ranges : held.heads) {
    std::int64_t tokens = std::max<std::int64_t>(0, read - held.read);
    for (const auto& [first, end] : ranges)
      tokens += std::max<std::int64_t>(0, std::min(end, read) - first);
    shares.push_back(static_cast<double>(tokens) /
                     static_cast<double>(std::max<std::int64_t>(1, read)));
  }
  return shares;
}

std::vector<double> shares_of_tokens(const KeptRun& run, std::int64_t read,
                                     std::optional<std::size_t> head) {
  const KeptRun::Held& held = held_after(run, read);
  // How many more heads hold a token than the token before.
  std::vector<std::int64_t> steps(static_cast<std::size_t>(read) + 1, 0);
  const auto add = [&](std::int64_t first, std::int64_t end) {
    if (std::min(end, read) <= first) return;
    ++steps[first];
    --steps[std::min(end, read)];
  };
  const std::size_t first_head = head.value_or(0), last_head = head ? *head + 1 : held.heads.size();
  for (std::size_t i = first_head; i < std::min(last_head, held.heads.size()); ++i) {
    for (const auto& [first, end] : held.heads[i]) add(first, end);
    add(held.read, read);
  }
  std::vector<double> shares(static_cast<std::size_t>(read));
  std::int64_t heads = 0;
  for (std::size_t i = 0; i < shares.size(); ++i) {
    heads += steps[i];
    shares[i] = static_cast<double>(heads) / static_cast<double>(last_head - first_head);
  }
  return shares;
}

namespace {

std::string piece_of(const KeptPrompt& prompt, const KeptRun& run, std::size_t token) {
  const auto of_prompt = static_cast<std::size_t>(prompt.tokens);
  const auto& pieces = token < of_prompt ? prompt.pieces : run.pieces;
  const std::size_t at = token < of_prompt ? token : token - of_prompt;
  return at < pieces.size() ? pieces[at] : str("#", token, " ");
}

std::string head_name(const KeptTokens& kept, std::size_t head) {
  const auto heads = static_cast<std::size_t>(kept.kv_heads);
  return str("layer ", head / heads, ", KV head ", head % heads);
}

Matrix shares_matrix(const KeptTokens& kept, const KeptRun& run, const KeptChoices& choices) {
  Matrix matrix{run.policy, "share held", {}, {}, shares_of_heads(run, choices.read)};
  for (std::int64_t layer = 0; layer < kept.layers; ++layer)
    matrix.row_labels.push_back(std::to_string(layer));
  for (std::int64_t head = 0; head < kept.kv_heads; ++head)
    matrix.column_labels.push_back(std::to_string(head));
  const auto heads = static_cast<std::size_t>(kept.kv_heads);
  if (choices.head) matrix.marked = {{*choices.head / heads, *choices.head % heads}};
  return matrix;
}

/// How many tokens of the prompt both texts have.
std::size_t shared_tokens(const ShownText& one, const ShownText& other) {
  return std::min({one.prompt_tokens, one.tokens.size(), other.tokens.size()});
}

}  // namespace

KeptView kept_view(const KeptTokens& kept, const KeptChoices& choices) {
  const KeptPrompt& prompt = kept.prompts.at(choices.prompt);
  std::vector<const KeptRun*> runs{&prompt.runs.at(choices.first)};
  if (choices.second) runs.push_back(&prompt.runs.at(*choices.second));
  KeptView view;
  Chart& chart = view.shares;
  const std::int64_t generated = std::max<std::int64_t>(0, choices.read - prompt.tokens);
  chart.title = str("Tokens held of ", prompt.id, ", ", generated, " tokens after the prompt");
  chart.notes.push_back(str("the share of ", choices.read, " tokens that each KV head holds"));
  chart.x = {"KV head", ""};
  chart.y = {"layer", ""};
  chart.table.columns = {{"layer"}, {"KV head"}};
  for (std::int64_t layer = 0; layer < kept.layers; ++layer)
    for (std::int64_t head = 0; head < kept.kv_heads; ++head)
      chart.table.rows.push_back({layer, head});
  const std::string of = choices.head ? head_name(kept, *choices.head) : "all heads";
  for (const KeptRun* run : runs) {
    chart.matrices.push_back(shares_matrix(kept, *run, choices));
    const auto& values = chart.matrices.back().values;
    chart.table.columns.push_back({run->policy, "share"});
    for (std::size_t i = 0; i < values.size(); ++i) chart.table.rows[i].emplace_back(values[i]);
    const std::int64_t read = std::min(choices.read, std::max(run->read, prompt.tokens));
    ShownText text{str(run->policy, ": ", of),
                   "of the heads hold it",
                   {},
                   static_cast<std::size_t>(prompt.tokens),
                   true,
                   choices.head ? "dropped" : "no head holds it",
                   choices.head ? "held" : "all heads hold it"};
    const auto shares = shares_of_tokens(*run, read, choices.head);
    for (std::size_t i = 0; i < shares.size(); ++i) {
      const std::string piece = piece_of(prompt, *run, i);
      text.tokens.push_back(
          {shown_text(piece), piece.find('\n') != std::string::npos, shares[i], shares[i], false});
    }
    view.texts.push_back(std::move(text));
  }
  if (view.texts.size() == 2)
    for (std::size_t i = 0; i < shared_tokens(view.texts[0], view.texts[1]); ++i) {
      ShownToken &one = view.texts[0].tokens[i], &other = view.texts[1].tokens[i];
      one.apart = one.value > 0 && other.value == 0;
      other.apart = other.value > 0 && one.value == 0;
    }
  return view;
}

}  // namespace kvatlas::viewer
