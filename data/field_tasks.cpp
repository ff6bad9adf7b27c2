// SPDX-License-Identifier: Apache-2.0
#include "data/field_tasks.hpp"

#include <algorithm>
#include <array>

namespace kvatlas::data {
namespace {

constexpr std::array kFieldTasks = {
    // RULER: scripts/synthetic.yaml, and the constants of its tasks.
    FieldTask{"niah_single_1", "found", 128}, FieldTask{"niah_single_2", "found", 128},
    FieldTask{"niah_single_3", "found", 128}, FieldTask{"niah_multikey_1", "found", 128},
    FieldTask{"niah_multikey_2", "found", 128}, FieldTask{"niah_multikey_3", "found", 128},
    FieldTask{"niah_multivalue", "found", 128}, FieldTask{"niah_multiquery", "found", 128},
    FieldTask{"vt", "found", 30}, FieldTask{"cwe", "found", 120}, FieldTask{"fwe", "found", 50},
    FieldTask{"qa_1", "any", 32}, FieldTask{"qa_2", "any", 32},
    // InfiniteBench and LooGLE, as kvpress has them.
    FieldTask{"longbook_qa_eng", "f1"}, FieldTask{"longbook_qa_chn", "f1", 0, "zh"},
    FieldTask{"longbook_sum_eng", "rouge_l"}, FieldTask{"longdialogue_qa_eng", "any"},
    FieldTask{"shortdep_qa", "rouge_l"}, FieldTask{"longdep_qa", "rouge_l"},
    FieldTask{"longdep_summarization", "rouge_l"},
    // SCBench: its evaluation scripts.
    FieldTask{"scbench_kv", "found", 150}, FieldTask{"scbench_prefix_suffix", "found", 150},
    FieldTask{"scbench_vt", "found", 30}, FieldTask{"scbench_passkey", "found", 15},
    FieldTask{"scbench_many_shot", "any", 10}, FieldTask{"scbench_qa_eng", "any", 40},
    FieldTask{"scbench_qa_chn", "f1", 40, "zh"}, FieldTask{"scbench_choice_eng", "choice", 40},
    FieldTask{"scbench_summary", "rouge_l", 200}};

}  // namespace

const FieldTask* field_task(std::string_view name) {
  const auto* found = std::find_if(kFieldTasks.begin(), kFieldTasks.end(),
                                   [&](const FieldTask& task) { return task.name == name; });
  return found == kFieldTasks.end() ? nullptr : found;
}

}  // namespace kvatlas::data
