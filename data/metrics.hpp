// SPDX-License-Identifier: Apache-2.0
// How much a generated text is like an answer: the metrics of LongBench and RULER, 0 to 1. Texts
// are UTF-8; other bytes do no harm.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace kvatlas::data {

/// The units that texts are compared by. Chinese has no blanks between words and is compared by
/// characters.
enum class Unit { word, character };

/// 1 if the answer is in the text, where capitals do not matter; else 0 (RULER).
bool is_found(std::string_view generated, std::string_view answer);

/// SQuAD's F1: of the words (or characters) that both have, as often as both have them. Capitals,
/// punctuation and the words a, an, the do not count.
double f1(std::string_view generated, std::string_view answer, Unit unit);

/// 1 if both are the same, apart from what f1 leaves out; else 0.
bool is_exact(std::string_view generated, std::string_view answer, Unit unit);

/// ROUGE-L's F measure as the package `rouge` has it: of the distinct words that stand in a longest
/// common subsequence of a sentence of the one and a sentence of the other. Of longer texts the
/// first 4096 words (or characters) are compared.
double rouge_l(std::string_view generated, std::string_view answer, Unit unit);

/// If the text names the right class, 1 divided by the number of classes that it names; else 0.
/// Names that are part of the right one's name do not count.
double classification(std::string_view generated, std::string_view answer,
                      std::span<const std::string> classes);

/// The share of the numbers in the text that are the answer's (first) number.
double right_numbers(std::string_view generated, std::string_view answer);

/// 1 if the text chooses the answer's letter, A to D, in the words "The correct answer is (B)" or
/// "The correct answer is B", with the brackets if there are any such; else 0 (LongBench v2).
double right_choice(std::string_view generated, std::string_view answer);

/// 1 if the text says this answer of the step, as in "Step 3: 17" or "Step 3: 12 + 5 = 17"; else 0.
/// What it says first counts, of step 1 also what stands before any "Step". Capitals, punctuation
/// and a thousand's comma do not matter.
double right_step(std::string_view generated, std::int64_t step, std::string_view answer);

/// 1 if the answer is what stands behind the last "Answer:", "answer is", "####" or "\boxed{";
/// else 0. Where none of them stands, a number is right if it is the last of the text.
double right_final(std::string_view generated, std::string_view answer);

/// The likeness of two texts by their matching blocks, in whole percent: fuzzywuzzy's ratio. Of
/// longer texts the first 4096 characters are compared.
double edit_similarity(std::string_view generated, std::string_view answer);

/// The first line that holds no `, # or //, or nothing: what LongBench compares with a line of
/// code.
std::string_view first_code_line(std::string_view generated);

/// The first line that is not empty.
std::string_view first_line(std::string_view generated);

}  // namespace kvatlas::data
