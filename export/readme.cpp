// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <sstream>

#include "base/plain_text.hpp"
#include "base/str.hpp"
#include "base/text_count.hpp"
#include "calibrate/policy/method.hpp"
#include "calibrate/report/report.hpp"
#include "calibrate/rules/cache_bytes.hpp"
#include "calibrate/rules/calibrated.hpp"
#include "export/readme_impl.hpp"

namespace kvatlas::exporting {
namespace {

using calibrate::Fit;
using calibrate::Form;
using calibrate::Loss;
using nlohmann::json;

/// The text in lines of at most 96 characters. `first` begins the first line; `others`, which is as
/// long, the others.
std::string wrapped(const std::string& text, const std::string& first, const std::string& others) {
  return first + join(wrapped_lines(text, 96 - others.size()), '\n' + others) + '\n';
}

std::string item(const std::string& text) { return wrapped(text, "  - ", "    "); }

/// Such as "0.900 (0.833 to 0.967)".
std::string text_of(const calibrate::Estimate& estimate) {
  std::string text = fixed_text(estimate.mean, 3);
  if (!std::isnan(estimate.low) && !std::isnan(estimate.high))
    text += " (" + fixed_text(estimate.low, 3) + " to " + fixed_text(estimate.high, 3) + ")";
  return text;
}

/// What was measured, as a sentence; "" if nothing was.
std::string measured_text(const std::optional<calibrate::Measured>& measured) {
  if (!measured || std::isnan(measured->score.mean)) return {};
  std::string text = "score " + text_of(measured->score);
  if (!std::isnan(measured->full.mean))
    text += " where the full cache has " + text_of(measured->full);
  text += str(", on ", count_of(measured->samples, "prompt", "prompts"),
              of_texts(measured->samples, measured->texts));
  if (const auto kl = calibrate::divergence_text(measured->kl); !kl.empty())
    text += "; KL divergence in nats: " + kl;
  if (!std::isnan(measured->agreement.mean)) text += "; agreement " + text_of(measured->agreement);
  return text;
}

/// What the section says of the same layers for every input; none where it does not.
std::optional<calibrate::StaticLayersReport> report_for_all(const json& section) {
  if (!section.is_object() || !section.contains("static")) return std::nullopt;
  return calibrate::read_report<calibrate::StaticLayersReport>(
      section.at("static"), calibrate::method::kSimLayerKv.name + std::string(".static"));
}

std::string fit_text(const calibrate::Expression& expression) {
  std::string text = expression.fit == Fit::exact ? "exact" : "approximate";
  if (!expression.note.empty()) text += ": " + expression.note;
  return text;
}

/// The losses of the form without those that cannot happen to this policy.
calibrate::Losses losses_of(const PartRequest& request) {
  calibrate::Losses losses = request.runtime.form(request.form).losses;
  if (request.form != Form::lazy_layers || !request.theirs.not_simulated.empty()) return losses;
  if (proximal(request).initial == 0) losses.erase(Loss::first_tokens_lost);
  if (!request.theirs.policy.masks_prefill) losses.erase(Loss::masks_prefill);
  return losses;
}

std::string cost(const PartRequest& request, const json& section, bool is_static) {
  const std::string& runtime = request.runtime.name;
  std::string out;
  // What is held while tokens are generated stands in the notes.
  const bool at_once = request.form != Form::decoding;
  if (const double share = kept_share(request); at_once && !std::isnan(share))
    out += item("Kept by the runtime of a prompt of " + str(request.length) +
                " tokens: " + percent_text(share) + " of the cache's bytes.");
  else if (at_once && request.theirs.not_simulated.empty() && request.form != Form::pod)
    out += item("How much is kept depends on the input.");
  calibrate::MethodReport report;
  if (section.is_object())
    report = calibrate::read_report<calibrate::MethodReport>(section, "section");
  const auto for_all = is_static ? report_for_all(section) : std::nullopt;
  if (const auto text = for_all ? measured_text(for_all->measured) : ""; !text.empty()) {
    const bool held_out = for_all->measured->held_out.value_or(false);
    out += item("The same layers for every input: " + text +
                (held_out ? " (held-out samples of the calibration)." : "."));
  }
  if (const auto text = measured_text(report.measured); !text.empty())
    out += item((is_static ? "The policy as calibrated, which decides for each input: "
                           : "The policy itself: ") +
                text + ".");
  const auto as_run = report.runtimes.find(runtime);
  const auto theirs =
      as_run == report.runtimes.end() ? "" : measured_text(std::move(as_run->second));
  if (!theirs.empty())
    out += item("As the runtime runs it: " + theirs + ".");
  else if (!request.theirs.not_simulated.empty())
    out += item("As the runtime runs it: not simulated, for " + request.theirs.not_simulated + ".");
  else if (request.theirs.changes.empty())
    out += item("The runtime runs the policy as it is.");
  else
    out += item(
        "As the runtime runs it: not measured; 'kvatlas evaluate --model $MODEL --policy "
        "policy.json --as " +
        runtime + " -o measured.json' does, and exporting measured.json says it here.");
  if (is_static) out += item(static_text(request, section));
  return out;
}

}  // namespace

std::string static_text(const PartRequest& request, const json& section) {
  const auto for_all = request.form == Form::lazy_layers ? report_for_all(section) : std::nullopt;
  return "The policy decides for each input; the runtime is given what is lazy most often. " +
         (for_all && !std::isnan(for_all->disagreement)
              ? "For " + percent_text(for_all->disagreement) +
                    " of the layers and inputs of the calibration the input itself "
                    "decides otherwise."
              : std::string("How often an input decides otherwise was not measured."));
}

double kept_share(const PartRequest& request) {
  if (request.runtime.form(request.form).losses.contains(Loss::memory_not_freed)) return 1;
  if (!request.theirs.not_simulated.empty()) return std::nan("");
  calibrate::CacheLoad load;
  load.shape = cache_shape(request.document.model);
  load.prompt = request.length;
  load.runtime = &request.runtime;
  const auto kept = cache_bytes(request.theirs.policy, load);
  return kept.by_input ? std::nan("") : kept.total() / cache_bytes({}, load).total();
}

std::string readme_text(const PartRequest& request, const std::string& section, bool is_static,
                        const Exported& exported) {
  const auto& document = request.document;
  const auto& expression = request.runtime.form(request.form);
  const std::string model =
      document.model.name.empty() ? "a model" : printable(document.model.name);
  std::string out = "A kvatlas policy of " + model + " for " + request.runtime.title + "\n\n";
  const auto field = [&](const std::string& name, const std::string& text) {
    out += wrapped(text, name + std::string(10 - name.size(), ' '), std::string(10, ' '));
  };
  calibrate::Policy policy;
  policy.parts = {request.part};
  if (request.form != Form::precision) {
    policy.kv_bits = document.kv_bits;
    policy.kv_residual = document.kv_residual;
  }
  field("policy", section == calibrate::kComposition
                      ? "composition, see policy.json"
                      : printable(calibrate::policy_text(policy), 400) + " (" +
                            calibrate::form_name(request.form) + ")");
  field("runtime", request.runtime.title + ", " + request.runtime.versions);
  field("fit", fit_text(expression));
  if (expression.losses.contains(Loss::holds_at_length))
    field("length", "for prompts of " + str(request.length) +
                        " tokens: at others the ratios keep other numbers of tokens");
  out += "\nUse\n";
  const std::size_t use = out.size();
  std::istringstream lines(exported.use);
  for (std::string line; std::getline(lines, line);)
    out += line.empty() ? "\n" : "    " + line + '\n';
  const auto& changes = request.theirs.changes;
  if (!changes.empty()) {
    out += "\nWhat the runtime does otherwise\n";
    for (const auto& change : changes) out += item(change);
  }
  if (const auto losses = losses_of(request); !losses.empty()) {
    out += "\nLosses (letters as in docs/runtimes.md)\n";
    for (const Loss loss : losses)
      out += wrapped(calibrate::loss_text(loss), str("  ", calibrate::loss_letter(loss), "  "),
                     "     ");
  }
  out += "\nWhat it saves and costs\n";
  const auto at = document.sections.find(section);
  out += cost(request, at == document.sections.end() ? json() : *at, is_static);
  if (!exported.notes.empty()) {
    out += "\nNotes\n";
    for (const auto& note : exported.notes) out += item(note);
  }
  if (out.find("$MODEL") != out.npos)
    out.insert(use, item("$MODEL stands for " + exported.model +
                         ": set it in a shell (MODEL=/path/to/it), or write it out.") +
                        "\n");
  return out;
}

}  // namespace kvatlas::exporting
