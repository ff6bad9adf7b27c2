// SPDX-License-Identifier: Apache-2.0
// kvpress is given the numbers of a press as JSON, and a loader that builds the press. If a press
// of its registry suffices, it is given the configuration of its evaluate.py too.
#include <algorithm>
#include <string>

#include "base/embedded_file.hpp"
#include "base/error.hpp"
#include "export/shared_impl.hpp"

namespace kvatlas::exporting {

KVATLAS_EMBEDDED_FILE(load_press_script, "load_press.py")

namespace {

using calibrate::AdaKv;
using calibrate::ChunkKv;
using calibrate::CriticalKv;
using calibrate::Decoding;
using calibrate::DynamicKv;
using calibrate::ExpectedAttention;
using calibrate::Form;
using calibrate::HeadKv;
using calibrate::KeyDiff;
using calibrate::KvZip;
using calibrate::LagKv;
using calibrate::Part;
using calibrate::SimLayerKv;
using calibrate::Streaming;
using calibrate::Tova;
using calibrate::WindowBudget;
using nlohmann::json;

/// The numbers of a press, and what the user must know of it.
struct Press {
  json numbers;
  json registered;  // evaluate.py's settings; null if its registry has no such press
  std::vector<std::string> notes;
  bool cuts_at_end = false;  // when it is left, not while the prompt is read
};

constexpr const char* kUnevenLayers =
    "Layers of different lengths: with sdpa decode one prompt at a time, token by token; a chunk "
    "of several tokens after the prompt (the question, in kvpress's pipeline) needs "
    "flash_attention_2, and eager ends in a shape error.";

constexpr const char* kMaskedHeads =
    "Use sdpa or flash_attention_2: masked heads are refused with eager. One prompt at a time, "
    "without padding.";

/// Lets the press take SnapKV's scores.
void score_by_window(Press& press, const WindowBudget& select) {
  press.numbers["scorer"] = "SnapKVPress";
  press.numbers["scorer_arguments"] = {{"window_size", select.window},
                                       {"kernel_size", select.kernel}};
}

/// A press with a ratio for each layer.
Press ratios_press(const PartRequest& request) {
  std::vector<std::int64_t> kept;
  json ratios = json::array();
  for (const auto& layer : kept_tokens(request, request.part)) {
    kept.push_back(layer.front());
    ratios.push_back(removed_ratio(layer.front(), request.length));
  }
  Press press;
  press.numbers["press"] = "PerLayerCompressionPress";
  press.numbers["arguments"] = {{"compression_ratios", ratios}};
  press.numbers["length"] = request.length;
  press.numbers["kept"] = kept;
  const auto [least, most] = std::minmax_element(kept.begin(), kept.end());
  if (*least >= request.length)
    press.notes.push_back(str("Nothing is cut of a prompt of ", request.length,
                              " tokens: every layer keeps at least as many."));
  else if (*least != *most)
    press.notes.emplace_back(kUnevenLayers);
  return press;
}

Press lazy_layers_press(const PartRequest& request) {
  const auto initial = proximal(request).initial;
  Press press = ratios_press(request);
  press.numbers["scorer"] = "StreamingLLMPress";
  press.numbers["scorer_arguments"] = {{"n_sink", initial}};
  if (std::holds_alternative<Streaming>(request.part) && initial == 4)
    press.registered = {
        {"press_name", "streaming_llm"},
        {"compression_ratio", press.numbers["arguments"]["compression_ratios"].front()}};
  return press;
}

Press budgets_press(const PartRequest& request) {
  Press press = ratios_press(request);
  score_by_window(press, std::get<DynamicKv>(request.part).select);
  return press;
}

/// A press with a ratio for each KV head.
Press head_ratios_press(const PartRequest& request) {
  const WindowBudget& select = std::get<HeadKv>(request.part).select;
  const auto length = static_cast<double>(request.length);
  const auto kept = kept_tokens(request, request.part);
  double removed = 0, heads = 0;
  json ratios = json::array();
  for (const auto& layer : kept) {
    json& row = ratios.emplace_back(json::array());
    for (const auto tokens : layer) {
      row.push_back(1 - static_cast<double>(tokens) / length);
      removed += row.back().get<double>();
      ++heads;
    }
  }
  Press press;
  press.numbers["press"] = "LUKVPress";
  press.numbers["arguments"] = {
      {"compression_ratio", removed / heads}, {"sink", 0}, {"window", select.window}};
  press.numbers["head_ratios"] = ratios;
  press.numbers["length"] = request.length;
  press.numbers["kept"] = kept;
  press.numbers["kv_heads"] = request.document.model.kv_heads;
  score_by_window(press, select);
  press.notes.emplace_back(kMaskedHeads);
  return press;
}

/// A press that keeps so many tokens in all layers. It has one ratio, or its scorer has.
Press ratio_press(const char* name, double ratio, std::int64_t kept, const PartRequest& request,
                  const WindowBudget* scorer = nullptr) {
  Press press;
  press.numbers["press"] = name;
  if (scorer) score_by_window(press, *scorer);
  press.numbers[scorer ? "scorer_arguments" : "arguments"]["compression_ratio"] = ratio;
  press.numbers["length"] = request.length;
  press.numbers["kept"] = kept;
  return press;
}

/// The press as its registry has it under this name.
json registered_as(const char* name, double ratio) {
  return {{"press_name", name}, {"compression_ratio", ratio}};
}
/// Whether it is the scorer that its registry has.
bool is_registered(const WindowBudget& select) { return select.window == 64 && select.kernel == 5; }

Press chunks_press(const PartRequest& request) {
  const auto& part = std::get<ChunkKv>(request.part);
  const double ratio = removed_ratio(part.chunks_kept(request.length), part.chunks(request.length));
  Press press =
      ratio_press("ChunkKVPress", ratio, part.kept(request.length), request, &part.select);
  press.numbers["arguments"]["chunk_length"] = part.chunk;
  if (is_registered(part.select) && part.chunk == 20)
    press.registered = registered_as("chunkkv", ratio);
  press.notes.emplace_back("Use sdpa or flash_attention_2: chunks are refused with eager.");
  return press;
}

[[noreturn]] void fail_without_press(const Part& part) {
  fail(ErrorCode::internal, "no press of kvpress is known for ", calibrate::name_of(part));
}

Press selected_press(const PartRequest& request) {
  if (std::holds_alternative<ChunkKv>(request.part)) return chunks_press(request);
  const std::int64_t kept = tokens_selected(request.part, request.length);
  const double ratio = removed_ratio(kept, request.length);
  if (const auto* expected = std::get_if<ExpectedAttention>(&request.part)) {
    Press press = ratio_press("ExpectedAttentionPress", ratio, kept, request);
    json& arguments = press.numbers["arguments"];
    arguments["n_sink"] = expected->sink;
    arguments["n_future_positions"] = expected->future;
    arguments["use_covariance"] = expected->covariance;
    arguments["use_vnorm"] = expected->values;
    arguments["epsilon"] = expected->epsilon;
    return press;
  }
  if (const auto* critical = std::get_if<CriticalKv>(&request.part)) {
    Press press = ratio_press("CriticalKVPress", ratio, kept, request, &critical->select);
    press.numbers["arguments"] = {{"epsilon", critical->epsilon},
                                  {"first_stage_ratio", critical->share}};
    if (is_registered(critical->select) && critical->epsilon == 1e-4 && critical->share == 0.5)
      press.registered = registered_as("critical_snapkv", ratio);
    return press;
  }
  const bool tova = std::holds_alternative<Tova>(request.part);
  if (!tova && !std::holds_alternative<KeyDiff>(request.part)) fail_without_press(request.part);
  Press press = ratio_press(tova ? "TOVAPress" : "KeyDiffPress", ratio, kept, request);
  press.registered = registered_as(tova ? "tova" : "keydiff", ratio);
  return press;
}

/// KVzipPress removes int(ratio * all) of the tokens that share a budget.
double ratio_removing(std::int64_t removed, std::int64_t all) {
  return removed == 0 ? 0 : 1 - removed_ratio(removed, all);
}

Press repeating_press(const KvZip& part, const PartRequest& request) {
  const auto& model = request.document.model;
  const std::int64_t kept = tokens_selected(request.part, request.length);
  const std::int64_t heads = model.kv_heads * (part.layerwise ? 1 : model.layers);
  const double ratio = ratio_removing((request.length - kept) * heads, request.length * heads);
  Press press = ratio_press("KVzipPress", ratio, kept, request);
  press.numbers["kv_heads"] = model.kv_heads;
  json& arguments = press.numbers["arguments"];
  arguments["n_sink"] = part.repetition.sink;
  arguments["chunk_size"] = part.repetition.chunk;
  arguments["layerwise"] = part.layerwise;
  if (part.repetition == calibrate::Repetition{} && !part.layerwise)
    press.registered = registered_as("kvzip", ratio);
  press.notes.emplace_back(kMaskedHeads);
  press.notes.emplace_back(
      "The prompt is repeated when the press is left: generate behind it, as the pipeline does.");
  press.cuts_at_end = true;
  return press;
}

Press selected_by_head_press(const PartRequest& request) {
  if (const auto* kvzip = std::get_if<KvZip>(&request.part))
    return repeating_press(*kvzip, request);
  const auto& part = std::get<AdaKv>(request.part);
  const std::int64_t kept = tokens_selected(request.part, request.length);
  const double ratio = removed_ratio(kept, request.length);
  Press press = ratio_press("AdaKVPress", ratio, kept, request, &part.select);
  press.numbers["arguments"]["alpha_safeguard"] = part.safeguard;
  if (is_registered(part.select) && part.safeguard == 0.2)
    press.registered = registered_as("adakv_snapkv", ratio);
  press.notes.emplace_back(kMaskedHeads);
  return press;
}

Press lag_press(const PartRequest& request) {
  const auto& lag = std::get<LagKv>(request.part);
  const double ratio = removed_ratio(lag.kept(request.length), request.length);
  Press press = ratio_press("LagKVPress", ratio, lag.kept(request.length), request);
  press.numbers["arguments"]["n_sink"] = lag.sink;
  press.numbers["arguments"]["lag_size"] = lag.lag;
  if (lag.sink == 4 && lag.lag == 128) press.registered = registered_as("lagkv", ratio);
  if (lag.lag > 256)
    press.notes.emplace_back(
        "It ranks the tokens of a partition in the type of the keys, and bfloat16 cannot tell more "
        "than 256 ranks apart: load the model in float16 or float32, or other tokens are kept.");
  press.notes.emplace_back("While decoding nothing is cut: what is generated is kept whole.");
  return press;
}

Press threshold_press(const PartRequest& request) {
  const auto& lazy = std::get<SimLayerKv>(request.part);
  if (lazy.keep.recent < 2)
    fail(ErrorCode::usage,
         "kvpress keeps everything where 'recent' is 1, for it takes one token off it: calibrate "
         "with at least 2 recent tokens");
  Press press;
  press.numbers["press"] = "SimLayerKVPress";
  press.numbers["arguments"] = {{"lazy_threshold", lazy.threshold},
                                {"n_last", 1},
                                {"n_recent", lazy.keep.recent},
                                {"n_initial", lazy.keep.initial}};
  press.notes.push_back(str("Prompts of at most ", lazy.keep.initial + lazy.keep.recent + 1,
                            " tokens are left whole, with a warning."));
  press.notes.emplace_back(kUnevenLayers);
  return press;
}

Press heads_press(const PartRequest& request) {
  const auto keep = proximal(request);
  const auto lazy = lazy_heads(request);
  json rows = json::array();
  for (const auto& row : lazy) {
    json& full = rows.emplace_back(json::array());
    for (const auto flag : row) full.push_back(flag != 0 ? 0 : 1);
  }
  Press press;
  press.numbers["press"] = "DuoAttentionPress";
  press.numbers["arguments"] = {{"head_compression_ratio", lazy_share(lazy)}};
  press.numbers["retrieval_heads"] = rows;
  press.numbers["sink_size"] = keep.initial;
  press.numbers["recent_size"] = keep.recent;
  press.numbers["kv_heads"] = request.document.model.kv_heads;
  press.notes.emplace_back(kMaskedHeads);
  return press;
}

Press decoding_press(const PartRequest& request) {
  const auto& part = std::get<Decoding>(request.part);
  Press press;
  press.numbers["press"] = "DecodingPress";
  press.numbers["arguments"] = {{"compression_interval", part.every}, {"target_size", part.budget}};
  if (part.by == Decoding::By::snapkv)
    score_by_window(press, {.window = part.window, .kernel = part.kernel});
  else if (part.by == Decoding::By::tova)
    press.numbers["scorer"] = "TOVAPress";
  else if (part.by == Decoding::By::keydiff)
    press.numbers["scorer"] = "KeyDiffPress";
  else
    fail_without_press(part);
  press.notes.push_back(str("The whole prompt is held until ", part.every,
                            " tokens are generated, from then on at most ",
                            part.budget + part.every, " tokens a KV head."));
  press.notes.emplace_back(
      "One prompt at a time, token by token. The press counts what is generated from where it is "
      "entered: enter it anew for each prompt.");
  return press;
}

Press press_of(const PartRequest& request) {
  switch (request.form) {
    case Form::lazy_layers:
      return lazy_layers_press(request);
    case Form::lazy_by_input:
      return threshold_press(request);
    case Form::lazy_heads:
      return heads_press(request);
    case Form::dynamickv:
      return budgets_press(request);
    case Form::headkv:
      return head_ratios_press(request);
    case Form::lagkv:
      return lag_press(request);
    case Form::selected:
      return selected_press(request);
    case Form::selected_by_head:
      return selected_by_head_press(request);
    case Form::decoding:
      return decoding_press(request);
    case Form::pod:
    case Form::precision:
      break;
  }
  fail(ErrorCode::internal, "kvpress takes no policy of this form");
}

/// The lines of Python that run the press of this file.
std::string python_of(const std::string& file, const Press& press) {
  const std::string load = "press = load_press(\"" + file + "\")\n";
  if (press.cuts_at_end)
    return "from transformers import pipeline\n"
           "from load_press import load_press\n"
           "pipe = pipeline(\"kv-press-text-generation\", model=\"$MODEL\")\n" +
           load + "print(pipe(context, question=question, press=press)[\"answer\"])\n";
  return "import torch\n"
         "from transformers import AutoModelForCausalLM, AutoTokenizer\n"
         "from load_press import load_press\n"
         "tokenizer = AutoTokenizer.from_pretrained(\"$MODEL\")\n"
         "model = AutoModelForCausalLM.from_pretrained(\"$MODEL\", "
         "attn_implementation=\"sdpa\")\n" +
         load +
         "inputs = tokenizer(prompt, return_tensors=\"pt\")\n"
         "with torch.no_grad(), press(model):\n"
         "    print(tokenizer.decode(model.generate(**inputs, max_new_tokens=64)[0]))\n";
}

std::string use_of(const std::string& file, const Press& press) {
  std::string use =
      "pip install kvpress==0.5.5 \"transformers>=4.56,<5.3\"\n"
      "\n"
      "# in Python, in this folder:\n" +
      python_of(file, press);
  if (!press.registered.is_null())
    use +=
        "\n"
        "# or, in the folder evaluation/ of kvpress's repository:\n"
        "python evaluate.py --config_file evaluate_config.yaml --model $MODEL\n";
  return use;
}

}  // namespace

Exported export_kvpress(const PartRequest& request) {
  Press press = press_of(request);
  press.numbers["layers"] = request.document.model.layers;
  const bool has_length = press.numbers.contains("length");
  const std::string file =
      "kvatlas_press" + (has_length ? "_" + str(request.length) : std::string()) + ".json";
  Exported exported;
  exported.files = {{file, calibrate::canonical_json(press.numbers)},
                    {"load_press.py", std::string(load_press_script())}};
  if (!press.registered.is_null())
    exported.files.push_back({"evaluate_config.yaml", yaml_text(press.registered)});
  exported.use = use_of(file, press);
  exported.notes = std::move(press.notes);
  return exported;
}

}  // namespace kvatlas::exporting
