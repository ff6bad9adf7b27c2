// SPDX-License-Identifier: Apache-2.0
#include "analyzer/capture/profile_run.hpp"

#include <algorithm>
#include <cmath>
#include <deque>
#include <future>
#include <limits>

#include "analyzer/capture/run_speed.hpp"
#include "analyzer/capture/sample_capture.hpp"
#include "analyzer/config/cache_card.hpp"
#include "base/error.hpp"
#include "kernels/dispatch.hpp"

namespace kvatlas::capture {
namespace {

// Last positions whose best token is compared under proximal attention (docs/pod.md).
constexpr std::int64_t kAgreementRows = 100;
// Samples of more bytes are written before the next batch begins.
constexpr std::int64_t kLargeSamples = 64 << 20;
// More prompts at a time win nothing: the weights are then read seldom enough.
constexpr std::int64_t kLargestBatch = 16;

std::int64_t length(const ProfilePrompt& prompt) {
  return static_cast<std::int64_t>(prompt.tokens.size());
}

/// A batch that runs: its sequences, and what is captured of each.
struct Batch {
  std::vector<std::int64_t> indices;
  std::deque<Sequence> sequences;
  std::vector<SampleCapture> captures;
  std::vector<std::vector<std::int64_t>> best;  // after each of the last positions, if wanted
};

class Runner {
 public:
  Runner(Engine& engine, const ProfilePlan& plan, const ProfileObserver& observer)
      : engine_(engine), plan_(plan), observer_(observer) {}

  void run(Batch& batch) {
    prefill(batch);
    if (plan_.settings.decodes()) generate(batch);
    if (plan_.settings.agreement)
      for (std::size_t i = 0; i < batch.indices.size(); ++i) compare_proximal(batch, i);
  }

 private:
  const ProfilePrompt& prompt(const Batch& batch, std::size_t i) const {
    return plan_.prompts[batch.indices[i]];
  }

  void prefill(Batch& batch) {
    const auto& settings = plan_.settings;
    std::vector<Engine::Step> steps;
    std::int64_t tokens = 0;
    for (std::size_t i = 0; i < batch.indices.size(); ++i) {
      const auto& one = prompt(batch, i);
      batch.sequences.push_back(engine_.sequence(settings.keeps_caches()));
      batch.captures.emplace_back(settings, engine_.model().config(), length(one),
                                  plan_.with_maps(batch.indices[i]));
      steps.push_back({&batch.sequences.back(), one.tokens});
      if (!settings.argmax) steps.back().logit_rows = kAgreementRows;
      tokens += length(one);
    }
    batch.best.resize(batch.indices.size());
    const bool many = settings.argmax || settings.agreement;
    QueryObserver queries;
    if (settings.queries || settings.covariance)
      queries = [&](std::int64_t layer, std::size_t i, const AnyView<3>& query) {
        batch.captures[i].queries(layer, query);
      };
    ReachObserver reach;
    if (settings.heads)
      reach = [&](std::int64_t layer, std::size_t i, std::span<const float> of_heads) {
        batch.captures[i].reach(layer, of_heads);
      };
    engine_.run(
        steps, many ? Logits::all : Logits::last,
        {.attention = [&](const AttentionInputs& in) { batch.captures[in.sequence].prefill(in); },
         .logits =
             [&](std::size_t i, std::int64_t position, View<const float, 2> rows) {
               for (std::int64_t row = 0; row < rows.sizes[0]; ++row) {
                 const auto best = argmax({rows.at(row), static_cast<std::size_t>(rows.sizes[1])});
                 if (settings.argmax) batch.captures[i].set_argmax(position + row, best);
                 batch.best[i].push_back(best);
               }
             },
         .progress = [&](std::int64_t layers) { report(layers, tokens); },
         .queries = queries,
         .reach = reach});
    for (std::size_t i = 0; i < batch.indices.size(); ++i) {
      require_numbers(batch.sequences[i], printable(prompt(batch, i).prompt.id));
      batch.captures[i].end_prefill(batch.sequences[i]);
    }
  }

  void generate(Batch& batch) {
    const auto& ends = plan_.end_tokens;
    std::vector<bool> ended(batch.indices.size(), false);
    for (std::int64_t step = 0; step < plan_.settings.generated; ++step) {
      std::vector<Engine::Step> steps;
      std::vector<std::size_t> owner;
      for (std::size_t i = 0; i < batch.indices.size(); ++i) {
        if (ended[i]) continue;
        const std::int64_t token = argmax(batch.sequences[i].logits());
        ended[i] = std::find(ends.begin(), ends.end(), token) != ends.end();
        batch.captures[i].begin_decode(step, token);
        steps.push_back({&batch.sequences[i], {token}});
        owner.push_back(i);
      }
      if (steps.empty()) return;
      const bool last = step + 1 == plan_.settings.generated;
      engine_.run(
          steps, last ? Logits::none : Logits::last,
          {.attention =
               [&](const AttentionInputs& in) { batch.captures[owner[in.sequence]].decode(in); },
           .logits = {},
           .progress = {}});
      for (const auto i : owner) batch.captures[i].end_decode();
    }
  }

  void compare_proximal(Batch& batch, std::size_t i) {
    const auto& one = prompt(batch, i);
    const auto& counts = plan_.settings.agreement_counts;
    const auto rows = std::min(kAgreementRows, length(one));
    const std::vector<std::int64_t> full(batch.best[i].end() - rows, batch.best[i].end());
    for (std::size_t k = 0; k < counts.size(); ++k) {
      if (counts[k] >= length(one)) {
        batch.captures[i].set_agreement(k, 1);  // every token is proximal
        continue;
      }
      const std::int64_t initial = std::min<std::int64_t>(4, counts[k] / 4);
      Sequence sequence = engine_.sequence(false);
      const std::vector<std::optional<kernels::Proximity>> proximal(
          static_cast<std::size_t>(engine_.model().config().n_layers),
          kernels::Proximity{initial, counts[k] - initial});
      const Engine::Step step{&sequence, one.tokens, rows, proximal};
      std::size_t position = 0, same = 0;
      engine_.run({&step, 1}, Logits::all,
                  {.attention = {},
                   .logits =
                       [&](std::size_t, std::int64_t, View<const float, 2> logits) {
                         for (std::int64_t row = 0; row < logits.sizes[0]; ++row)
                           same +=
                               full[position++] ==
                               argmax({logits.at(row), static_cast<std::size_t>(logits.sizes[1])});
                       },
                   .progress = [&](std::int64_t layers) { report(layers, length(one)); }});
      batch.captures[i].set_agreement(k, static_cast<double>(same) / static_cast<double>(rows));
    }
  }

  void report(std::int64_t layers, std::int64_t tokens) const {
    if (observer_.layer) observer_.layer(layers, tokens);
  }

  Engine& engine_;
  const ProfilePlan& plan_;
  const ProfileObserver& observer_;
};

/// The tokens' texts, for viewers, which have no tokenizer.
void add_texts(const model::Tokenizer& tokenizer, const std::vector<std::int64_t>& tokens,
               profile::Sample& sample) {
  std::string bytes;
  profile::Array ends(profile::Type::i32, {static_cast<std::int64_t>(tokens.size())});
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    bytes += tokenizer.decode_bytes({&tokens[i], 1}, false, false);
    if (bytes.size() > static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max())) return;
    ends.values<std::int32_t>()[i] = static_cast<std::int32_t>(bytes.size());
  }
  profile::Array text(profile::Type::u8, {static_cast<std::int64_t>(bytes.size())});
  std::copy(bytes.begin(), bytes.end(), text.values<std::uint8_t>().begin());
  sample.arrays[profile::name::kTextBytes] = std::move(text);
  sample.arrays[profile::name::kTextEnds] = std::move(ends);
}

profile::Sample finish(SampleCapture& capture, const ProfilePrompt& from, std::int64_t index,
                       const model::Tokenizer* tokenizer) {
  profile::Sample sample = capture.take();
  if (tokenizer) add_texts(*tokenizer, from.tokens, sample);
  sample.index = index;
  const PromptDescription& description = from.prompt;
  static_cast<PromptDescription&>(sample) = description;
  sample.tokens.assign(from.tokens.begin(), from.tokens.end());
  sample.cut_tokens = from.cut_tokens;
  return sample;
}

/// The engine's options for a batch of the longest prompts.
EngineOptions options_for(const ProfilePlan& plan, const model::ModelFile& model,
                          std::int64_t batch) {
  std::vector<std::int64_t> lengths;
  CaptureBytes largest;
  for (std::size_t i = 0; i < plan.prompts.size(); ++i) {
    lengths.push_back(length(plan.prompts[i]));
    const CaptureBytes capture = capture_bytes(plan.settings, model.config(), lengths.back(),
                                               plan.with_maps(static_cast<std::int64_t>(i)),
                                               layers_together(plan.engine.placement));
    largest.working = std::max(largest.working, capture.working);
    largest.arrays = std::max(largest.arrays, capture.arrays);
  }
  std::sort(lengths.rbegin(), lengths.rend());
  EngineOptions options = plan.engine;
  options.longest = lengths.front();
  options.all_tokens = 0;
  const auto count = std::min(static_cast<std::size_t>(batch), lengths.size());
  for (std::size_t i = 0; i < count; ++i)
    options.all_tokens += lengths[i] + plan.settings.generated;
  options.keep_caches = plan.settings.keeps_caches();
  const std::int64_t working = largest.working * static_cast<std::int64_t>(count);
  const std::int64_t arrays = largest.arrays * static_cast<std::int64_t>(count);
  const bool while_next_runs = count < lengths.size() && arrays <= kLargeSamples;
  options.other_bytes = working + arrays + (while_next_runs ? arrays : 0);
  return options;
}

}  // namespace

void fit_memory(ProfilePlan& plan, const model::ModelFile& model) {
  plan.batch = 1;
  plan.engine = options_for(plan, model, 1);
  const MemoryPlan memory = plan_memory(model, plan.engine);
  require_memory(memory, plan.engine);
  // Resident weights are read once anyway; streamed ones are read once a batch.
  if (!memory.streaming) return;
  for (std::int64_t batch = 2; batch <= kLargestBatch; ++batch) {
    const EngineOptions larger = options_for(plan, model, batch);
    if (batch > static_cast<std::int64_t>(plan.prompts.size()) ||
        (larger.memory_budget > 0 && plan_memory(model, larger).total_bytes > larger.memory_budget))
      return;
    plan.batch = batch;
    plan.engine = larger;
  }
}

ProfileEstimate estimate(const ProfilePlan& plan, const model::ModelFile& model) {
  const model::Config& c = model.config();
  ProfileEstimate out;
  out.memory = plan_memory(model, plan.engine);
  const RunSpeed speed(model, plan.engine.placement, out.memory.streaming);
  double work = 0, tokens = 0;
  for (std::size_t i = 0; i < plan.prompts.size(); ++i) {
    const auto n = static_cast<double>(length(plan.prompts[i]));
    const bool maps = plan.with_maps(static_cast<std::int64_t>(i)) &&
                      (plan.settings.maps || plan.settings.columns);
    tokens += n;
    // Maps are two products more, which run at about 0.6 of the rate of others.
    work += speed.prefill_work(n) + (maps ? 2 * speed.score_work(n) / 0.6 : 0);
    if (plan.settings.agreement)
      for (const auto count : plan.settings.agreement_counts)
        if (count < length(plan.prompts[i])) work += 2 * speed.prefill_work(n);
    const auto arrays = [&](bool with_maps) {
      return capture_bytes(plan.settings, c, length(plan.prompts[i]), with_maps, 1).arrays;
    };
    out.file_bytes += (arrays(maps) - arrays(false)) / 2;
  }
  out.file_bytes += profile::statistics_bytes(plan.settings, c) *
                    static_cast<std::int64_t>(plan.prompts.size()) * 3 / 4;
  const auto prompts = static_cast<double>(plan.prompts.size());
  const double batches = std::ceil(prompts / static_cast<double>(plan.batch));
  out.seconds =
      std::max(speed.seconds_of(work), speed.weights() * (speed.streaming() ? batches : 1));
  if (plan.settings.decodes()) {
    const auto steps = static_cast<double>(std::max<std::int64_t>(1, plan.settings.generated));
    const auto batch = static_cast<double>(plan.batch);
    out.seconds += batches * steps * speed.step(batch, batch, prompts > 0 ? tokens / prompts : 0);
  }
  return out;
}

profile::Header profile_header(const ProfilePlan& plan, const model::ModelFile& model,
                               const std::string& prompts) {
  const model::Config& c = model.config();
  profile::Header header;
  header.tool_version = KVATLAS_VERSION;
  header.model_name = c.name;
  header.architecture = model::architecture_name(c.architecture);
  header.model_fingerprint = model.fingerprint();
  if (model.tokenizer()) header.tokenizer_fingerprint = model.tokenizer()->fingerprint();
  header.n_layers = c.n_layers;
  header.n_heads = c.n_heads;
  header.n_kv_heads = c.n_kv_heads;
  header.head_dim = c.head_dim;
  header.vocab_size = c.vocab_size;
  header.context_length = c.context_length;
  header.window = c.window;
  header.layer_numbers = c.layer_numbers;
  header.latent_rank = c.latent.rank;
  header.cached_values = model::cached_values(c);
  const auto& placement = plan.engine.placement;
  header.backend = str(placement.device, ", ", placement.dtype,
                       placement.device == "cpu" ? ", " + kernels::cpu_target() : "");
  header.capture = plan.settings.json();
  header.prompts = prompts;
  header.planned_samples = static_cast<std::int64_t>(plan.prompts.size());
  header.axes = profile::axis_tables(plan.settings);
  header.arrays = profile::descriptions(plan.settings, c);
  if (model.tokenizer()) {
    const auto texts = profile::text_descriptions();
    header.arrays.insert(header.arrays.end(), texts.begin(), texts.end());
  }
  return header;
}

void run_profile(Engine& engine, const ProfilePlan& plan, profile::Writer& writer,
                 const std::function<std::optional<std::int64_t>()>& next,
                 const ProfileObserver& observer) {
  Runner runner(engine, plan, observer);
  const auto write = [&](const std::vector<profile::Sample>& samples) {
    for (const auto& sample : samples) {
      writer.add(sample);
      if (observer.finished) observer.finished(sample);
    }
  };
  std::future<void> writing;  // of the batch before, while the next one runs
  while (true) {
    Batch batch;
    while (static_cast<std::int64_t>(batch.indices.size()) < plan.batch) {
      const auto index = next();
      if (!index) break;
      batch.indices.push_back(*index);
    }
    if (!batch.indices.empty()) runner.run(batch);
    if (writing.valid()) writing.get();
    if (batch.indices.empty()) return;
    batch.sequences.clear();
    std::vector<profile::Sample> samples;
    std::int64_t bytes = 0;
    for (std::size_t i = 0; i < batch.indices.size(); ++i) {
      samples.push_back(finish(batch.captures[i], plan.prompts[batch.indices[i]], batch.indices[i],
                               engine.model().tokenizer().get()));
      for (const auto& [name, array] : samples.back().arrays) bytes += std::ssize(array.bytes);
    }
    // Small samples are mostly waiting for the disk; large ones are work for all cores, and memory.
    if (bytes > kLargeSamples)
      write(samples);
    else
      writing =
          std::async(std::launch::async, [&write, held = std::move(samples)] { write(held); });
  }
}

}  // namespace kvatlas::capture
