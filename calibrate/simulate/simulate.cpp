// SPDX-License-Identifier: Apache-2.0
#include "calibrate/simulate/simulate.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <optional>

#include "analyzer/config/cache_card.hpp"
#include "base/error.hpp"
#include "base/free_memory.hpp"
#include "base/interrupt.hpp"
#include "calibrate/policy/read_apart.hpp"
#include "calibrate/rules/rules.hpp"
#include "calibrate/simulate/continuations.hpp"
#include "calibrate/simulate/kl_divergence.hpp"
#include "calibrate/simulate/prompt_store.hpp"
#include "calibrate/simulate/vertical_slash_impl.hpp"

namespace kvatlas::calibrate {
namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// The full model's own continuation.
struct Reference {
  std::vector<std::int64_t> tokens;
  std::vector<std::vector<float>> logits;  // those that gave each token
  bool ended = false;
};

/// A mean that is taken step by step.
struct Mean {
  double sum = 0;
  std::int64_t count = 0;
  void add(double value) {
    sum += value;
    ++count;
  }
  double value() const {
    return count == 0 ? std::numeric_limits<double>::quiet_NaN() : sum / static_cast<double>(count);
  }
};

/// What is known of a plan so far.
struct Progress {
  const Plan* plan = nullptr;  // none: the full model
  Outcome outcome;
  Mean kl, agreement, read;
  std::int64_t cuts_apart = 1;  // how many tokens lie between the cuts that are noted, at least
};

/// A continuation of a plan. Until its own best token differs from the full model's, what it
/// generates and what is compared are one and the same.
struct Live {
  Progress* progress = nullptr;
  std::size_t number = 0;  // among the continuations
  bool free = true;        // goes on with its own tokens
  bool forced = true;      // goes on with the full model's
  bool full() const { return progress->plan == nullptr; }
  std::int64_t delay() const { return full() ? 1 : progress->plan->delay; }
};

/// One reading of the prompt, and the plans that decode from it.
struct Reading {
  bool leads = false;  // it is the full model's, whose continuation is made on the way
  std::shared_ptr<const ReadPrompt> prompt;
  std::vector<Plan> plans;
  std::vector<std::size_t> plan_of;  // [policy]
  std::vector<Progress> progress;    // [plan]
  Progress full;
  // As many plans at a time as their copies may take memory.
  std::size_t begun = 0;
  std::optional<Continuations> continuations;
  std::vector<Live> live;
  // The step that runs.
  std::int64_t step = 0;
  std::vector<std::size_t> which, numbers, to_split;
  std::vector<std::uint8_t> was_free;
};

/// Where query heads keep tokens of their own, those that any of them keeps.
std::vector<Range> kept_ranges(const HeadCut& cut) {
  std::vector<Range> out = cut.ranges;
  std::vector<std::int64_t> tokens = cut.tokens;
  for (const auto& of_head : cut.by_query_head)
    tokens.insert(tokens.end(), of_head.begin(), of_head.end());
  std::sort(tokens.begin(), tokens.end());
  tokens.erase(std::unique(tokens.begin(), tokens.end()), tokens.end());
  for (const auto token : tokens) {
    if (!out.empty() && out.back().end == token)
      ++out.back().end;
    else
      out.push_back({token, token + 1});
  }
  return out;
}

HeldPositions kept_positions(const Plan& plan) {
  HeldPositions out;
  for (const auto& layer : plan.heads) {
    auto& of_layer = out.emplace_back();
    for (const auto& head : layer) of_layer.push_back(kept_ranges(head));
  }
  return out;
}

/// What is held after more tokens were read, up to `read` of them, if nothing is cut.
HeldPositions grown(const HeldAt& from, std::int64_t read) {
  HeldPositions out = from.positions;
  if (from.read == read) return out;
  for (auto& layer : out)
    for (auto& head : layer) {
      if (!head.empty() && head.back().end == from.read)
        head.back().end = read;
      else
        head.push_back({from.read, read});
    }
  return out;
}

/// Notes what is held after `read` tokens if something was cut since the last note.
void note_cut(Progress& progress, std::int64_t read) {
  constexpr std::size_t kMostCuts = 256;
  Outcome& outcome = progress.outcome;
  auto& cuts = outcome.later_cuts;
  const HeldAt& last = cuts.empty() ? outcome.cut : cuts.back();
  if (read - last.read < progress.cuts_apart || outcome.end_positions == grown(last, read)) return;
  cuts.push_back({read, outcome.end_positions});
  if (cuts.size() < kMostCuts) return;
  // A window that rolls is cut at every token: then only some of the cuts are noted.
  for (std::size_t i = 0; 2 * i + 1 < cuts.size(); ++i) cuts[i] = std::move(cuts[2 * i + 1]);
  cuts.resize(cuts.size() / 2);
  progress.cuts_apart *= 2;
}

/// PoD with keys that are shared while the prompt is read, if the policy has such a part.
Pod* shared_prefill(Policy& policy) {
  for (auto& part : policy.parts)
    if (auto* pod = std::get_if<Pod>(&part); pod && pod->shared_prefill) return pod;
  return nullptr;
}

/// What a policy changes while the prompt is read.
struct Prefill {
  LayerWindows windows = {};
  decltype(capture::Engine::Step::on_store) on_store = {};
  decltype(capture::Engine::Step::on_query) on_query = {};
  decltype(capture::Engine::Step::seen) seen = {};
  std::optional<capture::SharedKeys> shared = {};
  std::int64_t chunk = 0;  // tokens read at a time, 0 for all
  /// Called where tokens are read at a time, with what they have stored: the next ones attend to
  /// what it makes of that. And on_store for the tokens of a chunk that is as short as so many.
  decltype(capture::Engine::Step::on_store) behind_chunk = {}, on_store_of_short = {};
};

/// A chunk behind the first of so few tokens attends to itself as it is stored, too.
constexpr std::int64_t kShortChunk = 128;

/// Whether nothing of a prompt must be known beside its cache.
bool none_of(const Needs& needs) {
  return needs.rows == 0 && needs.last_queries == 0 && !needs.columns && !needs.value_outputs &&
         !needs.mean_queries && needs.queries_without_first.empty() && needs.repetitions.empty() &&
         needs.prefill_masses.empty();
}

/// The prompt's tokens attend to what is stored of others.
void round_prefill(const Precision& part, std::int64_t layers, Prefill& prefill) {
  const auto all = layer_formats(part, layers);
  std::vector<KvFormats> at_once = all, later(all.size());
  for (std::size_t l = 0; l < all.size(); ++l)
    if (facts_of(all[l].keys).first_chunk_exact) std::swap(at_once[l], later[l]);
  const auto rounding = [&](const std::vector<KvFormats>& formats) {
    return [formats, scales = part.scales](auto layer, const auto& key, const auto& value) {
      round_layer(formats[static_cast<std::size_t>(layer)], scales, layer, key, value);
    };
  };
  prefill.on_store = rounding(at_once);
  if (part.chunk == 0 || at_once == all) return;
  prefill.chunk = part.chunk;
  prefill.behind_chunk = rounding(later);
  prefill.on_store_of_short = rounding(all);
}

class Simulation {
 public:
  Simulation(capture::Engine& engine, const SimulatedPrompt& prompt)
      : engine_(engine),
        config_(engine.model().config()),
        options_(prompt.options),
        name_(prompt.name) {
    const auto tokens = prompt.tokens;
    cut_ = options_.context_tokens > 0 ? options_.context_tokens
                                       : static_cast<std::int64_t>(tokens.size());
    context_.assign(tokens.begin(), tokens.begin() + cut_);
    question_.assign(tokens.begin() + cut_, tokens.end());
    steps_ = std::max<std::int64_t>(
        1, static_cast<std::int64_t>(question_.size()) + options_.max_new - 1);
  }

  /// Reads the prompt, and plans what is to decode from that reading.
  void read(std::span<const Policy> policies) {
    all_.assign(policies.begin(), policies.end());
    out_.policies.resize(all_.size());
    std::vector<Policy> together, sharing;
    for (std::size_t i = 0; i < all_.size(); ++i) {
      if (shared_prefill(all_[i])) sharing.push_back(all_[i]);
      (reads_prompt_apart(all_[i]) ? alone_ : plain_).push_back(i);
    }
    for (const auto i : plain_) together.push_back(all_[i]);
    lead_ = plans_of(together, {}, &sharing);
    // It found their blocks.
    auto found = sharing.begin();
    for (auto& policy : all_)
      if (shared_prefill(policy)) policy = std::move(*found++);
  }

  /// What decodes together takes: rows of a step, and bytes of copies.
  std::int64_t rows() const { return 1 + std::ssize(lead_->plans); }
  std::int64_t copied_bytes() const {
    const Continuations none(engine_, lead_->prompt->sequence, cut_, steps_);
    std::int64_t bytes = 0;
    for (const auto& plan : lead_->plans) bytes += none.bytes_of(plan);
    return bytes;
  }

  /// The next step of the policies that share the full model's reading; nothing when they are done.
  std::optional<capture::ContinuationStep> next_step() { return next_step(*lead_); }
  void took_step(double seconds) {
    took_step(*lead_);
    out_.decode_seconds += seconds;
  }

  /// Policies that read the prompt in ways of their own are run now, one after the other.
  Simulated end() {
    finish(lead_->full, *lead_);
    lead_->full.outcome.tokens = reference_.tokens;
    lead_->full.outcome.kl = 0;
    lead_->full.outcome.agreement = 1;
    out_.full = lead_->full.outcome;
    const auto outcomes = outcomes_of(*lead_);
    for (std::size_t i = 0; i < plain_.size(); ++i) out_.policies[plain_[i]] = outcomes[i];
    lead_.reset();
    for (const auto i : alone_) out_.policies[i] = run_alone(all_[i]);
    return std::move(out_);
  }

 private:
  std::int64_t questions() const { return static_cast<std::int64_t>(question_.size()); }

  Outcome run_alone(const Policy& policy) {
    Prefill prefill;
    Policy own = policy;
    if (const Pod* pod = shared_prefill(own)) prefill.shared = {pod->proximal, pod->lowest};
    if (own.masks_prefill) prefill.windows = prefill_windows(own, config_);
    if (const auto* part = part_of_type<Precision>(own)) {
      if (part->rounded_prefill) round_prefill(*part, config_.n_layers, prefill);
      if (part->fp8_queries)
        prefill.on_query = [part, formats = layer_formats(*part, config_.n_layers)](
                               auto layer, const auto& query) {
          round_queries(formats[static_cast<std::size_t>(layer)], part->scales, layer, query);
        };
    }
    std::optional<SparseReading> sparse;
    if (const VerticalSlash* part = sparse_reading(own)) {
      sparse.emplace(*part);
      prefill.seen = [&](const auto& in) { return sparse->choose(in); };
    }
    const auto reading = plans_of({&own, 1}, prefill, nullptr);
    const auto start = Clock::now();
    while (const auto step = next_step(*reading)) {
      engine_.run_continuations({&*step, 1});
      took_step(*reading);
    }
    out_.decode_seconds += seconds_since(start);
    Outcome outcome = outcomes_of(*reading).front();
    if (sparse) outcome.prompt_read = sparse->share();
    return outcome;
  }

  /// Plans of policies that read the prompt alike. The first reading is in full; it finds the
  /// blocks of the policies that are `sharing` keys, which are run later.
  std::unique_ptr<Reading> plans_of(std::span<const Policy> policies, const Prefill& changed,
                                    std::vector<Policy>* sharing) {
    auto reading = std::make_unique<Reading>();
    const bool leads = reading->leads = sharing != nullptr;
    auto start = Clock::now();
    std::vector<Policy> planned(policies.begin(), policies.end());
    if (leads) planned.insert(planned.end(), sharing->begin(), sharing->end());
    PromptFacts facts(needs_of(planned), config_, cut_);
    reading->prompt = leads ? read_or_found(facts) : read_prompt(changed, facts, 0);
    const capture::Sequence& prompt = reading->prompt->sequence;
    if (leads) out_.prefill_seconds = seconds_since(start);
    start = Clock::now();
    prefill_logits_ = reading->prompt->logits;
    if (leads && questions() == 0) accept_reference(prefill_logits_);
    if (leads && predicted(0) >= 0 && !reference_.ended) accept_reference(prompt.logits());
    auto& plans = reading->plans;
    for (const auto& policy : policies) {
      if (!leads && decides_while_decoding(policy))
        fail(ErrorCode::usage, policy.name,
             ": a policy that decides while decoding cannot change how the prompt is read");
      Plan plan = in_context(name_, [&] { return make_plan(policy, facts, prompt, config_); });
      const auto same = std::find(plans.begin(), plans.end(), plan);
      reading->plan_of.push_back(static_cast<std::size_t>(same - plans.begin()));
      if (same == plans.end()) plans.push_back(std::move(plan));
    }
    if (leads)
      for (auto& policy : *sharing) {
        Plan plan = in_context(name_, [&] { return make_plan(policy, facts, prompt, config_); });
        shared_prefill(policy)->lowest = std::move(plan.pod->lowest);
      }
    reading->progress.resize(plans.size());
    for (std::size_t i = 0; i < plans.size(); ++i) reading->progress[i].plan = &plans[i];
    out_.decode_seconds += seconds_since(start);
    return reading;
  }

  std::vector<Outcome> outcomes_of(Reading& reading) const {
    for (auto& one : reading.progress) finish(one, reading);
    std::vector<Outcome> outcomes;
    for (const auto plan : reading.plan_of) outcomes.push_back(reading.progress[plan].outcome);
    return outcomes;
  }

  /// The prompt as the full model reads it, with the first step, or as it was kept of an earlier
  /// round.
  std::shared_ptr<const ReadPrompt> read_or_found(PromptFacts& facts) {
    const Needs& needs = facts.needs();
    PromptStore::Key key = context_;
    key.push_back(questions() > 0 ? question_.front() : -1);
    if (options_.store)
      if (auto found = options_.store->find(engine_, key, needs)) {
        found->show(facts);
        return found;
      }
    const auto read = read_prompt({}, facts, options_.store ? rows_to_keep(needs) : 0);
    const std::int64_t token = questions() > 0 ? question_.front() : capture::argmax(read->logits);
    run_step(*read, {&read->sequence, {token}}, {.attention = [&](const auto& in) {
      facts.first_step(in);
      read->first_step(in);
    }});
    if (options_.store) options_.store->keep(std::move(key), read);
    return read;
  }

  std::shared_ptr<ReadPrompt> read_prompt(const Prefill& changed, PromptFacts& facts,
                                          std::int64_t rows) {
    auto read = std::make_shared<ReadPrompt>(engine_.sequence(), cut_, rows);
    capture::Engine::Step prefill{&read->sequence, context_};
    prefill.proximal = changed.windows;
    prefill.shared = changed.shared;
    prefill.on_store = changed.on_store;
    prefill.on_query = changed.on_query;
    prefill.seen = changed.seen;
    if (changed.chunk > 0 && changed.chunk < cut_) read_chunks(changed, facts, prefill);
    capture::EngineObservers observers{.attention = [&](const auto& in) {
      facts.prefill(in);
      read->prefill(in);
    }};
    if (!facts.needs().queries_without_first.empty() || facts.needs().mean_queries)
      observers.queries = [&](auto layer, auto, const auto& query) { facts.queries(layer, query); };
    if (facts.needs().value_outputs)
      observers.value_outputs = [&](auto layer, auto, const auto& outputs) {
        facts.value_outputs(layer, outputs);
      };
    run_step(*read, prefill, observers);
    read->logits = read->sequence.logits();
    for (const auto& repetition : facts.needs().repetitions)
      repeat_prompt(repetition, changed, *read, facts);
    return read;
  }

  /// Reads the prompt up to its last chunk, which is left in `step`.
  void read_chunks(const Prefill& changed, const PromptFacts& facts, capture::Engine::Step& step) {
    if (!none_of(facts.needs()))
      fail(ErrorCode::usage, name_, ": a prompt that is read in chunks of ", changed.chunk,
           " tokens shows no attention of all of it, which the policy's other parts need: leave "
           "'chunk' out, or them");
    const capture::Sequence& sequence = *step.sequence;
    for (std::int64_t begin = 0;; begin += changed.chunk) {
      const std::int64_t end = std::min(cut_, begin + changed.chunk);
      const bool whole = begin > 0 && end - begin <= kShortChunk;
      step.on_store = whole ? changed.on_store_of_short : changed.on_store;
      step.tokens.assign(context_.begin() + begin, context_.begin() + end);
      if (end == cut_) return;
      engine_.run({&step, 1}, capture::Logits::none);
      if (whole) continue;
      for (std::int64_t layer = 0; layer < config_.n_layers; ++layer) {
        const auto cache = sequence.cache(layer);
        changed.behind_chunk(layer, tokens_of(cache.key, begin, end),
                             tokens_of(cache.value, begin, end));
      }
    }
  }

  /// Of a layer's keys or values, those of these tokens.
  static AnyView<3> tokens_of(const AnyView<3>& all, std::int64_t begin, std::int64_t end) {
    const std::int64_t bytes = all.type == DType::f32 ? 4 : 2;
    return {static_cast<const std::byte*>(all.data) + begin * all.strides[1] * bytes,
            all.type,
            {all.sizes[0], end - begin, all.sizes[2]},
            all.strides,
            all.memory};
  }

  /// Lets the model repeat the prompt, part by part.
  void repeat_prompt(const Repetition& repetition, const Prefill& changed, ReadPrompt& read,
                     PromptFacts& facts) {
    if (!options_.repeat)
      fail(ErrorCode::internal, "a prompt is to be repeated, and no words ask for it");
    for (const RepeatedPart& repeated :
         repeated_parts(context_, *options_.repeat, repetition.chunk)) {
      capture::Engine::Step step{&read.sequence, repeated.tokens};
      step.on_store = changed.on_store;
      step.forgotten = true;
      engine_.run({&step, 1}, capture::Logits::none, {.attention = [&](const auto& in) {
                    facts.repeated(repetition, repeated.part, in);
                  }});
    }
  }

  void run_step(const ReadPrompt& read, const capture::Engine::Step& step,
                const capture::EngineObservers& observers) {
    engine_.run({&step, 1}, capture::Logits::last, observers);
    capture::require_numbers(read.sequence, name_);
  }

  Plan full_plan() const {
    Plan plan;
    plan.delay = 1;
    plan.heads = keep_all(config_, cut_ + 1);
    return plan;
  }

  /// The token that is run at step `step` by all that follow the reference.
  std::int64_t reference_input(std::int64_t step) const {
    return step < questions() ? question_[step] : reference_.tokens[step - questions()];
  }
  /// Which generated token step `step` predicts; negative while it reads the question.
  std::int64_t predicted(std::int64_t step) const { return step - questions() + 1; }

  bool ends(std::int64_t token) const {
    const auto& ends = options_.end_tokens;
    return std::find(ends.begin(), ends.end(), token) != ends.end();
  }

  void accept_reference(std::span<const float> logits) {
    reference_.tokens.push_back(capture::argmax(logits));
    reference_.logits.emplace_back(logits.begin(), logits.end());
    reference_.ended = done(reference_.tokens);
  }

  /// Begins the next plans, as many as their copies may take memory.
  void begin_part(Reading& reading) {
    const bool first = !reading.continuations;
    reading.live.clear();
    reading.continuations.reset();
    if (options_.within_budget) return_freed_pages();  // the copies before
    auto& continuations =
        reading.continuations.emplace(engine_, reading.prompt->sequence, cut_, steps_);
    std::vector<const Plan*> together;
    std::int64_t bytes = 0;
    for (std::size_t i = reading.begun; i < reading.plans.size(); ++i) {
      bytes += continuations.bytes_of(reading.plans[i]);
      if (!together.empty() && bytes > options_.copy_bytes) break;
      together.push_back(&reading.plans[i]);
    }
    continuations.reserve(together, options_.compare);
    if (reading.leads && first) begin(reading, reading.full);
    for (std::size_t i = 0; i < together.size(); ++i)
      begin(reading, reading.progress[reading.begun++]);
    reading.step = 0;
  }

  bool done(const std::vector<std::int64_t>& tokens) const {
    return static_cast<std::int64_t>(tokens.size()) >= options_.max_new ||
           (!tokens.empty() && ends(tokens.back())) ||
           (options_.settled && !options_.compare && options_.settled(tokens));
  }

  void begin(Reading& reading, Progress& progress) {
    Live one{&progress};
    one.number = reading.continuations->add(one.full() ? full_plan() : *progress.plan);
    Outcome& outcome = progress.outcome;
    outcome.kept = outcome.cache_lengths = reading.continuations->lengths(one.number);
    outcome.kept_bytes = reading.continuations->stored_bytes(one.number);
    outcome.full_bytes = cache_shape(config_).full_bytes(cut_ + one.delay());
    if (options_.positions)
      outcome.cut = {cut_ + one.delay(), kept_positions(one.full() ? full_plan() : *progress.plan)};
    // What is cut behind the first step holds everything during that step.
    if (one.delay() == 1 && predicted(0) >= 1) outcome.held_bytes = {outcome.full_bytes};
    if (one.full()) {
      one.free = !reference_.ended;
      one.forced = false;
      reading.live.push_back(one);
      return;
    }
    one.forced = options_.compare;
    if (questions() == 0) outcome.tokens = {capture::argmax(prefill_logits_)};
    const std::int64_t p = predicted(0);
    if (one.delay() == 1 && p >= 0 && p < static_cast<std::int64_t>(reference_.tokens.size())) {
      // The step before the cut was the full model's.
      outcome.tokens.push_back(reference_.tokens[p]);
      if (one.forced) add_comparison(progress, 0, true);
    }
    one.free = options_.generate && !done(outcome.tokens);
    reading.live.push_back(one);
    if (!one.forced || questions() > 0 || prefill_logits_ == reference_.logits.front()) return;
    // A changed prefill has changed the first token's distribution already.
    compare(prefill_logits_, 0, progress);
    if (one.free && outcome.tokens.front() != reference_.tokens.front())
      split(reading, reading.live.size() - 1);
  }

  static void add_comparison(Progress& progress, double kl, bool same) {
    progress.kl.add(kl);
    progress.agreement.add(same ? 1 : 0);
  }

  void compare(std::span<const float> logits, std::int64_t index, Progress& progress) const {
    const auto& reference = reference_.logits[index];
    const double kl = kl_divergence(reference, logits);
    add_comparison(progress, kl,
                   !std::isnan(kl) && capture::argmax(reference) == capture::argmax(logits));
  }

  std::optional<capture::ContinuationStep> next_step(Reading& reading) {
    if (!reading.continuations) begin_part(reading);
    for (;; begin_part(reading)) {
      for (; reading.step < steps_; ++reading.step) {
        stop_if_interrupted();
        if (auto step = step_of(reading); !step.tokens.empty()) return step;
      }
      if (reading.begun < reading.plans.size()) continue;
      reading.continuations.reset();
      return std::nullopt;
    }
  }

  /// Without tokens if nothing is run at this step.
  capture::ContinuationStep step_of(Reading& reading) {
    const std::int64_t step = reading.step;
    reading.which.clear();
    reading.numbers.clear();
    reading.to_split.clear();
    reading.was_free.clear();
    std::vector<std::int64_t> tokens;
    for (std::size_t i = 0; i < reading.live.size(); ++i) {
      Live& one = reading.live[i];
      if (step < one.delay()) continue;
      // Nothing is left to compare behind the full model's last token.
      one.forced =
          one.forced && !(reference_.ended &&
                          predicted(step) >= static_cast<std::int64_t>(reference_.tokens.size()));
      if (!one.free && !one.forced) continue;
      reading.which.push_back(i);
      reading.numbers.push_back(one.number);
      reading.was_free.push_back(one.free ? 1 : 0);
      tokens.push_back(step < questions() || !one.free || one.full()
                           ? reference_input(step)
                           : one.progress->outcome.tokens[step - questions()]);
    }
    return reading.continuations->next_step(
        reading.numbers, tokens, cut_ + step,
        [this, &reading](std::size_t row, std::span<const float> logits) {
          const std::size_t i = reading.which[row];
          if (advance(reading.live[i], logits, predicted(reading.step)))
            reading.to_split.push_back(i);
        });
  }

  void took_step(Reading& reading) {
    Continuations& continuations = *reading.continuations;
    continuations.took_step();
    for (std::size_t row = 0; row < reading.which.size(); ++row) {
      if (reading.was_free[row] == 0) continue;
      const std::size_t number = reading.numbers[row];
      const Live& one = reading.live[reading.which[row]];
      const StepBytes bytes = continuations.last_step(number);
      Progress& of = *one.progress;
      of.read.add(bytes.read);
      if (predicted(reading.step) >= 1) of.outcome.held_bytes.push_back(bytes.held);
      const bool last = !one.free || reading.step + 1 == steps_;
      if (last) of.outcome.cache_lengths = continuations.lengths(number);
      if (options_.positions) {
        of.outcome.end_positions = continuations.positions(number);
        note_cut(of, cut_ + reading.step + 1);
      }
      of.outcome.skipped = continuations.skipped(number);
    }
    for (const auto i : reading.to_split) split(reading, i);
    ++reading.step;
  }

  /// What a row of logits says, for the p-th generated token. True: from here on what it generates
  /// and what is compared differ.
  bool advance(Live& one, std::span<const float> logits, std::int64_t p) {
    if (p < 0) return false;
    if (one.full()) {
      accept_reference(logits);
      one.free = !reference_.ended;
      return false;
    }
    if (one.forced) compare(logits, p, *one.progress);
    if (!one.free) return false;
    auto& tokens = one.progress->outcome.tokens;
    tokens.push_back(capture::argmax(logits));
    one.free = !done(tokens);
    return one.free && one.forced && tokens.back() != reference_.tokens[p];
  }

  /// The free continuation goes its own way; a second one follows the full model.
  static void split(Reading& reading, std::size_t i) {
    Live second = reading.live[i];
    second.number = reading.continuations->fork(second.number);
    second.free = false;
    reading.live[i].forced = false;
    reading.live.push_back(second);
  }

  /// Seconds a step takes when the plan decodes alone: the median.
  double time_alone(const capture::Sequence& prompt, const Plan& plan) const {
    Continuations alone(engine_, prompt, cut_, options_.time_steps + 1);
    const std::size_t number = alone.add(plan);
    std::vector<double> seconds;
    for (std::int64_t step = 0; step <= options_.time_steps; ++step) {
      const std::int64_t last = static_cast<std::int64_t>(reference_.tokens.size()) - 1;
      const std::int64_t token = reference_input(std::min(step, questions() + last));
      const auto start = Clock::now();
      const auto next =
          alone.next_step({&number, 1}, {&token, 1}, cut_ + plan.delay + step, [](auto, auto) {});
      engine_.run_continuations({&next, 1});
      alone.took_step();
      if (step > 0) seconds.push_back(seconds_since(start));
    }
    std::nth_element(seconds.begin(),
                     seconds.begin() + static_cast<std::ptrdiff_t>(seconds.size() / 2),
                     seconds.end());
    return seconds[seconds.size() / 2];
  }

  void finish(Progress& progress, const Reading& reading) const {
    Outcome& outcome = progress.outcome;
    outcome.compared = progress.kl.count;
    if (progress.kl.count > 0) outcome.kl = progress.kl.value();
    if (progress.agreement.count > 0) outcome.agreement = progress.agreement.value();
    outcome.read_bytes = progress.read.count > 0 ? progress.read.value() : outcome.kept_bytes;
    const Plan plan = progress.plan ? *progress.plan : full_plan();
    outcome.lazy = plan.lazy;
    outcome.mass = plan.mass;
    outcome.budgets = plan.budgets;
    if (plan.pod) outcome.lowest = plan.pod->lowest;
    if (plan.shared_values) outcome.lowest = plan.shared_values->lowest;
    if (options_.time_steps > 0)
      outcome.seconds_per_token = time_alone(reading.prompt->sequence, plan);
  }

  capture::Engine& engine_;
  const model::Config& config_;
  const SimulateOptions& options_;
  const std::string& name_;
  std::int64_t cut_ = 0, steps_ = 0;
  std::vector<std::int64_t> context_, question_;
  std::vector<float> prefill_logits_;
  Reference reference_;
  std::vector<Policy> all_;
  std::vector<std::size_t> plain_, alone_;  // of all_
  std::unique_ptr<Reading> lead_;
  Simulated out_;
};

/// Steps of all of these together, until each is done.
void decode_together(capture::Engine& engine, std::span<const std::unique_ptr<Simulation>> of) {
  std::vector<Simulation*> running;
  for (const auto& simulation : of) running.push_back(simulation.get());
  while (!running.empty()) {
    const auto start = Clock::now();
    std::vector<capture::ContinuationStep> steps;
    std::vector<Simulation*> stepping;
    for (auto* simulation : running)
      if (auto step = simulation->next_step()) {
        steps.push_back(std::move(*step));
        stepping.push_back(simulation);
      }
    engine.run_continuations(steps);
    for (auto* simulation : stepping)
      simulation->took_step(seconds_since(start) / static_cast<double>(stepping.size()));
    running = std::move(stepping);
  }
}

}  // namespace

std::vector<Simulated> simulate(capture::Engine& engine, std::span<const SimulatedPrompt> prompts,
                                std::span<const Policy> policies) {
  const model::Config& config = engine.model().config();
  ModelInfo cache;
  cache.cached_values = model::cached_values(config);
  cache.latent_rank = config.latent.rank;
  for (const Policy& policy : policies) check_cache(policy, cache);
  std::vector<std::unique_ptr<Simulation>> all;
  for (const SimulatedPrompt& prompt : prompts) {
    if (prompt.options.max_new < 1) fail(ErrorCode::usage, "at least one token must be generated");
    all.push_back(std::make_unique<Simulation>(engine, prompt));
    all.back()->read(policies);
  }
  std::vector<Simulated> out;
  while (out.size() < all.size()) {
    const std::size_t first = out.size();
    std::size_t end = first;
    std::int64_t rows = 0, bytes = 0;
    do {
      rows += all[end]->rows();
      bytes += all[end]->copied_bytes();
      const bool too_many = !engine.streaming() && rows > kRowsTogether;
      if (end > first && (too_many || bytes > prompts[end].options.copy_bytes)) break;
    } while (++end < all.size());
    decode_together(engine, std::span(all).subspan(first, end - first));
    for (; out.size() < end;) {
      auto& simulation = all[out.size()];
      out.push_back(simulation->end());
      simulation.reset();
    }
  }
  return out;
}

}  // namespace kvatlas::calibrate
