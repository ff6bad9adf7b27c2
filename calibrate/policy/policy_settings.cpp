// SPDX-License-Identifier: Apache-2.0
#include "calibrate/policy/policy_settings.hpp"

#include <algorithm>
#include <charconv>
#include <limits>

#include "base/error.hpp"
#include "base/plain_text.hpp"
#include "calibrate/policy/method.hpp"

namespace kvatlas::calibrate {
namespace {

using nlohmann::json;

constexpr std::int64_t kMostTokens = std::int64_t{1} << 24;
constexpr WholeRange kTokens{0, kMostTokens}, kSomeTokens{1, kMostTokens}, kRows{1, 4096};
constexpr NumberRange kShare{0, 1};

/// The member of a part that a path of pointers to members leads to.
template <class P, class Member, class... Deeper>
const auto& member_at(const Part& part, Member P::*first, Deeper... deeper) {
  return ((std::get<P>(part).*first).*....*deeper);
}
template <class P, class Member, class... Deeper>
auto& member_at(Part& part, Member P::*first, Deeper... deeper) {
  return ((std::get<P>(part).*first).*....*deeper);
}

template <class... Path>
Setting setting(const char* key, Allowed allowed, const char* meaning, Path... path) {
  return {key, meaning, std::move(allowed),
          [=](const Part& part) -> json { return member_at(part, path...); },
          [=](Part& part, const json& value) { value.get_to(member_at(part, path...)); }};
}

/// Kept as an enumeration or a bool: the place among the words.
template <class... Path>
Setting choice(const char* key, const std::vector<std::string_view>& words, const char* meaning,
               Path... path) {
  return {key, meaning, OneOf{words},
          [=](const Part& part) -> json {
            return words[static_cast<std::size_t>(member_at(part, path...))];
          },
          [=](Part& part, const json& value) {
            const auto& word = value.get_ref<const std::string&>();
            auto& member = member_at(part, path...);
            member = static_cast<std::remove_reference_t<decltype(member)>>(
                std::find(words.begin(), words.end(), word) - words.begin());
          }};
}

/// A number that need not be given.
template <class P>
Setting optional_setting(const char* key, Allowed allowed, const char* meaning,
                         std::optional<std::int64_t> P::*member) {
  return {key, meaning, std::move(allowed),
          [=](const Part& part) -> json {
            const auto& value = std::get<P>(part).*member;
            return value ? json(*value) : json();
          },
          [=](Part& part, const json& value) {
            std::get<P>(part).*member = value.get<std::int64_t>();
          }};
}

template <class P>
Setting initial_kept(Proximity P::*keep) {
  return setting("initial", kTokens, "first tokens kept", keep, &Proximity::initial);
}
template <class P>
Setting recent_kept(Proximity P::*keep) {
  return setting("recent", kSomeTokens, "last tokens kept, the query's own included", keep,
                 &Proximity::recent);
}

/// Settings that several parts have, and behind them those of one.
std::vector<Setting> with(std::vector<Setting> settings, const std::vector<Setting>& own) {
  settings.insert(settings.end(), own.begin(), own.end());
  return settings;
}

std::vector<Setting> simlayerkv_settings() {
  using P = SimLayerKv;
  return {
      setting("threshold", kShare, "layers whose proximal mass exceeds it are lazy", &P::threshold),
      initial_kept(&P::keep),
      recent_kept(&P::keep),
      choice("identify", {"decode", "prefill"},
             "when: at the first generated token, or at the last prompt rows", &P::identify),
      setting("w_last", kRows, "those prompt rows", &P::w_last),
      choice("granularity", {"layer", "head"}, "what is lazy: layers, or KV heads", &P::per_head),
      setting("opposite", YesOrNo{}, "trim as many layers, those of the smallest mass",
              &P::opposite)};
}

std::vector<Setting> layer_baseline_settings() {
  using P = LayerBaseline;
  return {setting("threshold", kShare, "as many layers are trimmed as simlayerkv finds lazy at it",
                  &P::threshold),
          optional_setting("layers", WholeRange{0, 4096}, "or so many", &P::layers),
          initial_kept(&P::keep), recent_kept(&P::keep)};
}

std::vector<Setting> pyramid_layers_settings() {
  return with(layer_baseline_settings(),
              {choice("shape", {"top", "linear"},
                      "the highest layers trimmed, or windows that shrink from layer to layer, at "
                      "equal bytes",
                      &LayerBaseline::shape)});
}

std::vector<Setting> random_layers_settings() {
  using P = LayerBaseline;
  return with(layer_baseline_settings(),
              {choice("from", {"lower", "upper", "all"},
                      "the half of the layers that they are drawn from", &P::from),
               setting("seed", AnySeed{}, "of the first draw", &P::seed),
               setting("draws", WholeRange{1, 100},
                       "draws, of this seed and the following, each a policy of its own; what is "
                       "measured on a prompt is their mean",
                       &P::draws)});
}

std::vector<Setting> pod_settings() {
  return {
      setting("delta", kShare, "least similarity of the layers of a block", &Pod::delta),
      setting("initial", kTokens, "first tokens, never shared", &Pod::proximal,
              &Proximity::initial),
      setting("recent", kSomeTokens, "last tokens, never shared", &Pod::proximal,
              &Proximity::recent),
      choice("granularity", {"kv-head", "head"},
             "what has blocks of its own: KV heads, or query heads", &Pod::per_query_head),
      setting("tau", kShare, "PoD's gate at which a head skips the distant part; 1: never",
              &Pod::tau),
      choice("prefill", {"own", "shared"},
             "the keys that prompt tokens read: each layer's own, or shared ones as in decoding",
             &Pod::shared_prefill),
      setting("blocks", TextLength{0, 4096},
              "profile or policy to take the blocks from; without: the prompt's own rows",
              &Pod::blocks_file)};
}

template <class P>
std::vector<Setting> window_score_settings(WindowBudget P::*select) {
  using W = WindowBudget;
  return {setting("window", kRows, "last prompt rows, which score the others; kept", select,
                  &W::window),
          setting("budget", WholeRange{2, kMostTokens},
                  "tokens kept a layer in the mean, the window included", select, &W::budget),
          setting("kernel", WholeRange{1, 4095, true}, "positions that scores are pooled over, odd",
                  select, &W::kernel),
          choice("pooling", {"avg", "max"}, "how they are pooled", select, &W::pooling)};
}

template <class P>
std::vector<Setting> window_budget_settings(WindowBudget P::*select) {
  return with(window_score_settings(select),
              {choice("heads", {"kv", "query"},
                      "what keeps tokens of its own: KV heads, or query heads, which store keys "
                      "and values each for itself",
                      select, &WindowBudget::per_query_head)});
}

std::vector<Setting> dynamickv_settings() {
  return with(
      window_budget_settings(&DynamicKv::select),
      {setting("r_max", NumberRange{1, 1e6},
               "most tokens of a layer in budgets, neither with the window", &DynamicKv::r_max),
       setting(
           "update", WholeRange{0, 4096},
           "layers after which those so far are cut, each time for good; 0: once, after the last",
           &DynamicKv::update)});
}

template <class P>
Setting safeguard(double P::*share) {
  return setting("safeguard", kShare, "share of the budget that each head keeps at least", share);
}

std::vector<Setting> criticalkv_settings() {
  return with(window_score_settings(&CriticalKv::select),
              {setting("share", kShare, "share of the budget that the scores alone decide on",
                       &CriticalKv::share),
               setting("epsilon", kShare, "what is added to scores that values weigh",
                       &CriticalKv::epsilon)});
}

template <class P>
Setting tokens_kept(std::int64_t P::*budget) {
  return setting("budget", WholeRange{2, kMostTokens}, "tokens kept", budget);
}

/// `local` and `l2` name a variant.
std::vector<Setting> lag_settings() {
  return {setting("sink", kTokens, "first tokens kept", &LagKv::sink),
          setting("lag", WholeRange{2, kMostTokens}, "tokens a partition", &LagKv::lag),
          setting("ratio", TextLength{1, 19}, "share of a partition kept, as 0.25 or 1/4",
                  &LagKv::ratio)};
}

std::vector<Setting> lagkv_settings() {
  return with(lag_settings(),
              {choice("variant", {"lag", "local", "l2"},
                      "scored against the next partition, its own, or by the key's norm",
                      &LagKv::variant)});
}

std::vector<Setting> decoding_settings() {
  using P = Decoding;
  return {
      tokens_kept(&P::budget),
      setting("every", kSomeTokens, "generated tokens after which the best are chosen anew",
              &P::every),
      choice("by", {"snapkv", "h2o", "tova", "keydiff", "l2", "rkv", "streaming", "triattention"},
             "what scores the tokens", &P::by),
      setting("window", kRows, "with snapkv and rkv: last tokens, which score the others; kept",
              &P::window),
      setting("kernel", WholeRange{1, 4095, true},
              "with snapkv and rkv: tokens that attention is pooled over, odd", &P::kernel),
      setting("initial", kTokens, "with streaming: first tokens kept", &P::initial),
      setting("lambda", kShare, "with rkv: weight of attention; the rest is redundancy's",
              &P::lambda),
      choice("prompt", {"cut", "whole"},
             "the prompt: cut to the budget when it is read, or held until the first choice",
             &P::whole_prompt)};
}

std::vector<std::string_view> format_words() {
  std::vector<std::string_view> words;
  for (const KvFormatFacts& format : kKvFormats) words.push_back(format.word);
  return words;
}

std::vector<PartName> make_names() {
  LayerBaseline random;
  random.choose = LayerBaseline::Choose::random;
  SnapKv pyramid;
  pyramid.pyramid = true;
  LagKv local, l2;
  local.variant = LagVariant::local;
  l2.variant = LagVariant::l2;
  return {
      {"streaming",
       "every layer keeps the first and the last tokens",
       Streaming{},
       {initial_kept(&Streaming::keep), recent_kept(&Streaming::keep)},
       PartTraits{.form = Form::lazy_layers, .in_place = true}},
      {"window",
       "every layer keeps the last tokens",
       Streaming{{0, Proximity{}.recent}},
       {recent_kept(&Streaming::keep)}},
      {method::kSimLayerKv.name, "lazy layers keep the first and the last tokens", SimLayerKv{},
       simlayerkv_settings(),
       PartTraits{.kind = PartKind::trims,
                  .form = Form::lazy_by_input,
                  .in_place = true,
                  .by_layer = true}},
      {method::kPod.name, "layers of a block share the keys of distant tokens", Pod{},
       pod_settings(), PartTraits{.kind = PartKind::shares, .form = Form::pod, .in_place = true}},
      {method::kDynamicKv.name, "a budget of tokens for each layer, by the prompt's scores",
       DynamicKv{}, dynamickv_settings(), PartTraits{.form = Form::dynamickv}},
      {method::kHeadKv.name, "a budget of tokens for each KV head, or the best scored of all heads",
       HeadKv{}, with(window_score_settings(&HeadKv::select), {safeguard(&HeadKv::safeguard)}),
       PartTraits{.form = Form::headkv}},
      {method::kLagKv.name, "partitions cut by their scores against the next one", LagKv{},
       lagkv_settings(), PartTraits{.form = Form::lagkv}},
      {"snapkv", "the same budget of best scored tokens in every layer", SnapKv{},
       window_budget_settings(&SnapKv::select),
       PartTraits{.form = Form::selected, .title = "SnapKV"}},
      {"pyramidkv", "budgets that fall linearly over the layers", pyramid,
       window_budget_settings(&SnapKv::select), PartTraits{.title = "PyramidKV"}},
      {"adakv", "the best scored tokens of all heads of a layer, more in some heads than in others",
       AdaKv{}, with(window_budget_settings(&AdaKv::select), {safeguard(&AdaKv::safeguard)}),
       PartTraits{.form = Form::selected_by_head, .title = "AdaKV"}},
      {"chunkkv", "whole chunks of tokens, the best scored, the same in all heads of a layer",
       ChunkKv{},
       with(window_score_settings(&ChunkKv::select),
            {setting("chunk", kRows, "tokens a chunk", &ChunkKv::chunk)}),
       PartTraits{.form = Form::selected, .by_layer = true, .title = "ChunkKV"}},
      {"criticalkv", "the best scored tokens, and those whose values give most to the output",
       CriticalKv{}, criticalkv_settings(),
       PartTraits{.form = Form::selected, .title = "CriticalKV"}},
      {"h2o",
       "the tokens that took most attention, and the most recent",
       H2o{},
       {tokens_kept(&H2o::budget),
        optional_setting("heavy", kTokens,
                         "of them those that took most attention, the rest the most recent; "
                         "without: half",
                         &H2o::heavy)},
       PartTraits{.form = Form::selected, .title = "H2O"}},
      {"tova",
       "the tokens that the last one attends to most, the same in all heads of a layer",
       Tova{},
       {tokens_kept(&Tova::budget)},
       PartTraits{.form = Form::selected, .by_layer = true, .title = "TOVA"}},
      {"keydiff",
       "the tokens whose keys are least like the mean key",
       KeyDiff{},
       {tokens_kept(&KeyDiff::budget)},
       PartTraits{.form = Form::selected, .title = "KeyDiff"}},
      {"expected-attention",
       "the tokens that later queries would attend to most, if they were like the prompt's",
       ExpectedAttention{},
       {tokens_kept(&ExpectedAttention::budget),
        setting("sink", kTokens, "first tokens kept, whose queries are not counted",
                &ExpectedAttention::sink),
        setting("future", kRows, "positions behind the prompt that queries are put at",
                &ExpectedAttention::future),
        setting("covariance", YesOrNo{}, "how queries vary is counted, not their mean alone",
                &ExpectedAttention::covariance),
        setting("values", YesOrNo{}, "scores are multiplied by the norms of values",
                &ExpectedAttention::values),
        setting("epsilon", kShare, "what is added to the scores before that",
                &ExpectedAttention::epsilon)},
       PartTraits{.form = Form::selected, .title = "ExpectedAttention"}},
      {"kvzip",
       "the tokens that the model attends to most while it repeats the prompt, more in some layers "
       "and heads than in others",
       KvZip{},
       {setting("budget", WholeRange{2, kMostTokens}, "tokens kept a head in the mean",
                &KvZip::budget),
        setting("sink", kTokens, "first tokens kept, attended to while any part is repeated",
                &KvZip::repetition, &Repetition::sink),
        setting("chunk", kSomeTokens, "tokens repeated at a time", &KvZip::repetition,
                &Repetition::chunk),
        setting("layerwise", YesOrNo{}, "every layer keeps as many tokens, not all layers together",
                &KvZip::layerwise)},
       PartTraits{.form = Form::selected_by_head, .title = "KVzip"}},
      {"decoding",
       "a budget that holds while generating: the best tokens are chosen again and again",
       Decoding{}, decoding_settings(), PartTraits{.form = Form::decoding}},
      {"pyramid-layers", "higher layers trimmed more", LayerBaseline{}, pyramid_layers_settings(),
       PartTraits{.kind = PartKind::trims, .in_place = true, .by_layer = true}},
      {"random-layers", "layers drawn by a seed trimmed", random, random_layers_settings()},
      {"minicache",
       "adjacent layers of the upper half merged",
       MiniCache{},
       {setting("t", kShare, "where between the two layers their merged direction lies",
                &MiniCache::t),
        setting("retain", kTokens, "tokens not merged, those whose directions differ most",
                &MiniCache::retain)},
       PartTraits{.kind = PartKind::merges}},
      {"share-values",
       "layers whose values point the same way share them",
       ShareValues{},
       {setting("delta", kShare, "least mean cosine of the values of a block's layers",
                &ShareValues::delta),
        setting("recent", kTokens, "last tokens, not shared", &ShareValues::recent)},
       PartTraits{.kind = PartKind::merges}},
      {"local", "lagkv with variant=local", local, lag_settings()},
      {"l2", "lagkv with variant=l2", l2, lag_settings()},
      {"quest",
       "pages of tokens read by the bounds of their keys",
       Quest{},
       {setting("page", kRows, "tokens a page", &Quest::page),
        setting("budget", kSomeTokens, "tokens read a step; all are kept", &Quest::budget)},
       PartTraits{.in_place = true}},
      {method::kPrecision.name,
       "keys and values stored in number formats of fewer bits",
       Precision{},
       {choice("keys", format_words(), "format of the keys of all layers", &Precision::everywhere,
               &KvFormats::keys),
        choice("values", format_words(), "format of their values", &Precision::everywhere,
               &KvFormats::values),
        choice(
            "prefill", {"exact", "rounded"},
            "what prompt tokens attend to: exact keys and values, or rounded ones, as in servers",
            &Precision::rounded_prefill),
        setting("skip", TextLength{0, 4096},
                "layers that stay at 16 bits, as 0:1:-2:-1; negative ones from the last",
                &Precision::skip),
        choice("queries", {"exact", "fp8"},
               "queries on layers in a floating-point format: exact, or rounded to E4M3",
               &Precision::fp8_queries),
        setting("chunk", kTokens,
                "with prefill=rounded: prompt tokens that a server reads at a time, of which "
                "TurboQuant leaves the first chunk exact; 0: all",
                &Precision::chunk)},
       PartTraits{.kind = PartKind::stores, .form = Form::precision}},
      {"vertical-slash",
       "prompt tokens attend to the columns and diagonals that the last rows attend to most",
       VerticalSlash{},
       {setting("vertical", kSomeTokens, "columns a query head", &VerticalSlash::vertical),
        setting("slash", kSomeTokens, "diagonals a query head", &VerticalSlash::slash),
        setting("last", kRows, "last rows, which choose them", &VerticalSlash::last),
        setting("initial", kTokens, "first columns, always among them", &VerticalSlash::initial),
        setting("recent", kSomeTokens, "nearest diagonals, always among them",
                &VerticalSlash::recent)},
       PartTraits{.kind = PartKind::reads, .in_place = true}}};
}

struct RangeText {
  template <class Range>
  std::string operator()(const Range& range) const {
    return str(range.least, " to ", range.most);
  }
  std::string operator()(AnySeed) const { return "whole number"; }
  std::string operator()(YesOrNo) const { return "0 or 1"; }
  std::string operator()(TextLength) const { return ""; }
  std::string operator()(const OneOf& choice) const { return join(choice.words, " or "); }
};

struct IsAllowed {
  const json& value;

  bool operator()(const WholeRange& range) const {
    // An unsigned number beyond int64 would turn negative.
    const bool fits = value.is_number_integer() &&
                      !(value.is_number_unsigned() && value.get<std::uint64_t>() > INT64_MAX);
    return fits && value.get<std::int64_t>() >= range.least &&
           value.get<std::int64_t>() <= range.most;
  }
  bool operator()(const NumberRange& range) const {
    // NaN fails both comparisons.
    return value.is_number() && value.get<double>() >= range.least &&
           value.get<double>() <= range.most;
  }
  bool operator()(AnySeed) const {
    return value.is_number_integer() &&
           (value.is_number_unsigned() || value.get<std::int64_t>() >= 0);
  }
  bool operator()(YesOrNo) const { return value.is_boolean(); }
  bool operator()(TextLength) const { return value.is_string(); }
  bool operator()(const OneOf& choice) const {
    return value.is_string() &&
           std::find(choice.words.begin(), choice.words.end(),
                     value.get_ref<const std::string&>()) != choice.words.end();
  }
};

/// The nth row of the part's type.
const PartName& nth_row(const Part& part, std::size_t nth) {
  for (const PartName& row : part_names())
    if (row.standard.index() == part.index() && nth-- == 0) return row;
  fail(ErrorCode::internal, "a part without a name");
}

/// Which of the rows of its type says most about a part.
struct WhichName {
  std::size_t operator()(const Streaming& part) const { return part.keep.initial == 0 ? 1 : 0; }
  std::size_t operator()(const LayerBaseline& part) const {
    return static_cast<std::size_t>(part.choose);
  }
  std::size_t operator()(const SnapKv& part) const { return part.pyramid ? 1 : 0; }
  std::size_t operator()(const LagKv& part) const { return static_cast<std::size_t>(part.variant); }
  template <class Other>
  std::size_t operator()(const Other&) const {
    return 0;
  }
};

/// Whether the settings of a part go together.
struct Check {
  void operator()(const H2o& part) const {
    if (part.heaviest() > part.budget)
      fail(ErrorCode::usage, "heavy ", part.heaviest(), " exceeds the budget of ", part.budget);
  }
  void operator()(const ExpectedAttention& part) const { require_more(part.budget, part.sink); }
  void operator()(const KvZip& part) const { require_more(part.budget, part.repetition.sink); }
  void operator()(const LagKv& part) const { part.keep(); }
  void operator()(const Decoding& part) const {
    const bool by_window = part.by == Decoding::By::snapkv || part.by == Decoding::By::rkv;
    if (by_window && part.budget <= part.window)
      fail(ErrorCode::usage, "budget ", part.budget, " must exceed the window of ", part.window,
           " tokens, which is kept");
    if (by_window && part.every < part.window)
      fail(ErrorCode::usage, "every ", part.every, " is less than the window of ", part.window,
           " tokens, whose queries are taken from those generated since the last choice");
    if (part.by == Decoding::By::streaming) require_more(part.budget, part.initial);
  }
  void operator()(const Quest& part) const {
    if (part.budget < part.page)
      fail(ErrorCode::usage, "budget ", part.budget, " is less than a page of ", part.page);
  }
  void operator()(const Precision& part) const {
    skipped_layers(part.skip);
    const auto pairs = [](const KvFormats& layer) {
      for (const KvFormat format : {layer.keys, layer.values})
        if (facts_of(format).pair && layer.keys != layer.values)
          fail(ErrorCode::usage, facts_of(format).word,
               " stores keys and values together: give it for both, keys=", facts_of(format).word,
               ",values=", facts_of(format).word);
    };
    pairs(part.everywhere);
    for (const KvFormats& layer : part.fixed.value_or(std::vector<KvFormats>{})) pairs(layer);
  }
  void operator()(const VerticalSlash& part) const {
    if (part.vertical < part.initial)
      fail(ErrorCode::usage, "vertical ", part.vertical, " is less than the ", part.initial,
           " first columns, which are among them");
    if (part.slash < part.recent)
      fail(ErrorCode::usage, "slash ", part.slash, " is less than the ", part.recent,
           " nearest diagonals, which are among them");
  }
  template <class Other>
  void operator()(const Other&) const {}

 private:
  static void require_more(std::int64_t budget, std::int64_t first) {
    if (budget <= first)
      fail(ErrorCode::usage, "budget ", budget, " must exceed the ", first,
           " first tokens, which are kept");
  }
};

}  // namespace

const std::vector<PartName>& part_names() {
  static const std::vector<PartName> names = make_names();
  return names;
}

const PartName* find_part(std::string_view name) {
  const auto& names = part_names();
  const auto found = std::find_if(names.begin(), names.end(),
                                  [&](const PartName& part) { return part.name == name; });
  return found == names.end() ? nullptr : &*found;
}

std::vector<const PartName*> selections() {
  std::vector<const PartName*> out;
  for (const PartName& part : part_names())
    if (!part.traits.title.empty()) out.push_back(&part);
  std::sort(out.begin(), out.end(),
            [](const PartName* a, const PartName* b) { return a->name < b->name; });
  return out;
}

std::string_view title_of(std::string_view part) {
  if (const Method* section = find_section(part)) return section->title;
  const PartName* known = find_part(part);
  return known && !known->traits.title.empty() ? known->traits.title : part;
}

std::string lack_of_setting(const PartName& part, std::string_view key) {
  std::vector<std::string> keys;
  for (const auto& setting : part.settings) keys.push_back(setting.key);
  if (std::find(keys.begin(), keys.end(), key) != keys.end()) return "";
  if (part.name == "minicache" && key == "recent")
    return ": not the last tokens stay unmerged but those that differ most, and 'retain' says how "
           "many";
  return "; known are " + join(keys);
}

const Setting& setting_named(std::string_view part, std::string_view key) {
  const PartName* const known = find_part(part);
  if (known)
    for (const auto& setting : known->settings)
      if (setting.key == key) return setting;
  fail(ErrorCode::internal, "there is no setting ", key, " of ", part);
}

const std::vector<std::string_view>& setting_words(std::string_view part, std::string_view key) {
  return std::get<OneOf>(setting_named(part, key).allowed).words;
}

std::string default_text(std::string_view part, std::string_view key) {
  return value_text(setting_named(part, key).get(find_part(part)->standard));
}

const PartName& row_of(const Part& part) { return nth_row(part, std::visit(WhichName{}, part)); }
const PartTraits& traits_of(const Part& part) { return nth_row(part, 0).traits; }
std::string name_of(const Part& part) { return row_of(part).name; }

std::string section_name(const Part& part) {
  const Method* own = find_section(nth_row(part, 0).name);
  return own ? own->name : method::kBaseline.name;
}

std::string range_text(const Allowed& allowed) { return std::visit(RangeText{}, allowed); }

std::string expected_text(const Allowed& allowed) {
  if (std::holds_alternative<AnySeed>(allowed))
    return str("a whole number from 0 to ", std::numeric_limits<std::uint64_t>::max());
  const char* kind = std::holds_alternative<WholeRange>(allowed)    ? "a whole number from "
                     : std::holds_alternative<NumberRange>(allowed) ? "a number from "
                     : std::holds_alternative<TextLength>(allowed)  ? "text"
                                                                    : "";
  return kind + range_text(allowed);
}

bool is_allowed(const Allowed& allowed, const json& value) {
  return std::visit(IsAllowed{value}, allowed);
}

json value_from_text(const Allowed& allowed, const std::string& text) {
  const auto number = [&](auto value) {
    const char* const end = text.data() + text.size();
    const auto read = std::from_chars(text.data(), end, value);
    return read.ec == std::errc() && read.ptr == end ? json(value) : json();
  };
  if (std::holds_alternative<WholeRange>(allowed)) return number(std::int64_t{});
  if (std::holds_alternative<NumberRange>(allowed)) return number(0.0);
  if (std::holds_alternative<AnySeed>(allowed)) return number(std::uint64_t{});
  if (std::holds_alternative<YesOrNo>(allowed))
    return text == "1" ? json(true) : text == "0" ? json(false) : json();
  return text;
}

std::string value_text(const json& value) {
  if (value.is_null()) return "";
  if (value.is_string()) return value.get<std::string>();
  if (value.is_boolean()) return value.get<bool>() ? "1" : "0";
  if (!value.is_number_float()) return value.dump();
  char digits[32];
  const auto end = std::to_chars(std::begin(digits), std::end(digits), value.get<double>()).ptr;
  return {digits, end};
}

void check_settings(const Part& part) {
  for (const auto& setting : row_of(part).settings)
    if (const auto* range = std::get_if<WholeRange>(&setting.allowed); range && range->odd)
      if (const auto value = setting.get(part).get<std::int64_t>(); value % 2 == 0)
        fail(ErrorCode::usage, setting.key, " ", value, ": must be odd");
  if (const WindowBudget* select = window_budget(part); select && select->budget <= select->window)
    fail(ErrorCode::usage, "budget ", select->budget, " must exceed the window of ", select->window,
         " tokens, which is kept");
  std::visit(Check{}, part);
}

std::int64_t ChunkKv::chunks_kept(std::int64_t tokens) const {
  const std::int64_t all = chunks(tokens);
  return tokens <= select.budget ? all : std::max<std::int64_t>(1, all * select.budget / tokens);
}

std::int64_t ChunkKv::kept(std::int64_t tokens) const {
  if (chunks_kept(tokens) == chunks(tokens)) return tokens;
  const std::int64_t rest = tokens % chunk;
  return chunks_kept(tokens) * chunk - (rest > 0 ? chunk - rest : 0);
}

std::int64_t Decoding::kept_last() const {
  switch (by) {
    case By::snapkv:
    case By::rkv:
      return window;
    case By::tova:
      return 1;
    case By::h2o:
      return budget - kernels::h2o_heavy(budget);
    case By::streaming:
      return budget - initial;
    case By::keydiff:
    case By::l2:
    case By::triattention:
      break;
  }
  return 0;
}

std::int64_t LagKv::keep() const { return kernels::kept_of_partition(ratio, lag); }

std::int64_t LagKv::kept(std::int64_t tokens) const {
  return kernels::lag_length(tokens, sink, lag, keep());
}

}  // namespace kvatlas::calibrate
