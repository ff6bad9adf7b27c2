// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <sstream>

#include "base/plain_text.hpp"
#include "base/str.hpp"
#include "calibrate/policy/method.hpp"
#include "calibrate/rules/cache_bytes.hpp"
#include "calibrate/rules/calibrated.hpp"
#include "export/readme_impl.hpp"

namespace kvatlas::exporting {
namespace {

using calibrate::Fit;
using calibrate::Form;
using calibrate::Loss;
using nlohmann::json;

/// The text in lines of at most 96 characters. `first` begins the first line, `others` the others.
std::string wrapped(const std::string& text, const std::string& first, const std::string& others) {
  std::istringstream words(text);
  std::string out, line = first, word;
  bool empty = true;
  while (words >> word) {
    if (!empty && line.size() + 1 + word.size() > 96) {
      out += line + '\n';
      line = others;
      empty = true;
    }
    line += (empty ? "" : " ") + word;
    empty = false;
  }
  return out + line + '\n';
}

std::string item(const std::string& text) { return wrapped(text, "  - ", "    "); }

/// Such as "0.900 (0.833 to 0.967)"; "" if the JSON is no estimate.
std::string estimate(const json& of) {
  if (!of.is_object() || !of.value("mean", json()).is_number()) return {};
  std::string text = fixed_text(of.at("mean").get<double>(), 3);
  if (of.value("low", json()).is_number() && of.value("high", json()).is_number())
    text += " (" + fixed_text(of.at("low").get<double>(), 3) + " to " +
            fixed_text(of.at("high").get<double>(), 3) + ")";
  return text;
}

/// What a section's "measured" says, as a sentence; "" if it says nothing.
std::string measured_text(const json& measured) {
  if (!measured.is_object()) return {};
  const auto of = [&](const char* key) { return measured.value(key, json()); };
  std::string text;
  if (const auto score = estimate(of("score")); !score.empty()) {
    text = "score " + score;
    if (const auto full = estimate(of("full")); !full.empty())
      text += " where the full cache has " + full;
    if (of("samples").is_number()) text += ", on " + of("samples").dump() + " prompts";
    if (of("texts").is_number() && of("texts") != of("samples"))
      text += " of " + of("texts").dump() + " texts";
  }
  if (const auto kl = calibrate::divergence_text(calibrate::divergence_from(of("kl"))); !kl.empty())
    text += (text.empty() ? "" : "; ") + std::string("KL divergence in nats: ") + kl;
  if (const auto agreement = estimate(of("agreement")); !agreement.empty())
    text += (text.empty() ? "" : "; ") + std::string("agreement ") + agreement;
  return text;
}

/// The member of the section that `path` leads to, or null.
json found(const json& section, std::initializer_list<const char*> path) {
  const json* at = &section;
  for (const char* key : path) {
    if (!at->is_object() || !at->contains(key)) return {};
    at = &at->at(key);
  }
  return *at;
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
  const json view = is_static ? found(section, {"static"}) : section;
  if (const auto text = measured_text(found(view, {"measured"})); !text.empty()) {
    const bool held_out = is_static && found(view, {"measured", "held_out"}) == true;
    out += item((is_static ? "The same layers for every input: " : "The policy itself: ") + text +
                (held_out ? " (held-out samples of the calibration)." : "."));
  }
  if (const auto text = measured_text(found(section, {"measured"})); is_static && !text.empty())
    out += item("The policy as calibrated, which decides for each input: " + text + ".");
  const auto theirs = measured_text(found(view, {"runtimes", runtime.c_str()}));
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
  const auto differs =
      request.form == Form::lazy_layers ? found(section, {"static", "disagreement"}) : json();
  return "The policy decides for each input; the runtime is given what is lazy most often. " +
         (differs.is_number()
              ? "For " + percent_text(differs.get<double>()) +
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
