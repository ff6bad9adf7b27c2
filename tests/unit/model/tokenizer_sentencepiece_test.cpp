// SPDX-License-Identifier: Apache-2.0
// Small models of every kind, trained here by the SentencePiece library, encode as the library
// does.
#include <algorithm>
#include <random>

#include <gtest/gtest.h>
#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>

#include "analyzer/tokenizer/tokenizer.hpp"
#include "tests/support/tokenizer_checks.hpp"

namespace kvatlas::model {
namespace {

using Ids = std::vector<std::int64_t>;

const std::vector<std::string>& sentences() {
  static const std::vector<std::string> all = {
      "the quick brown fox jumps over the lazy dog",
      "The whole world, the hill and all that is there",
      "def f(x): return x**2  # square of 1234 or 3.14159",
      "naïve café ﬁne Ⅷ ½ Ａ１ 你好，世界 हिन्दी",
      "hello hello  world   there was a world of all the hellos"};
  return all;
}

/// Words of the sentences, spaces and characters that no model knows.
std::string random_text(std::mt19937& random) {
  const char* const parts[] = {"the", " the ", "hello",   " ",    "  ", "▁",      "wor",
                               "ld",  "é",     "e\u0301", "ﬁ",    "Ⅷ",  "你好",   "😀",
                               "<s>", "ll",    "<s2>",    "1234", ".",  "\t\n",   "\u3000",
                               "xyz", "Ａ１",  "ẛ̣",       "T",    "ab", "\u200b", "हि"};
  std::string text;
  for (auto count = random() % 12; count > 0; --count) text += parts[random() % std::size(parts)];
  return text;
}

class Sentences : public sentencepiece::SentenceIterator {
 public:
  bool done() const override { return at_ == sentences().size(); }
  void Next() override { ++at_; }
  const std::string& value() const override { return sentences()[at_]; }
  sentencepiece::util::Status status() const override { return {}; }

 private:
  std::size_t at_ = 0;
};

std::string trained(const std::string& options) {
  const std::string all =
      "--minloglevel=2 --num_threads=1 --hard_vocab_limit=false --character_coverage=0.99 " +
      options;
  Sentences iterator;
  std::string model;
  const auto status = sentencepiece::SentencePieceTrainer::Train(all, &iterator, &model);
  EXPECT_TRUE(status.ok()) << status.ToString();
  return model;
}

class SentencePiece : public testing::TestWithParam<const char*> {};

/// Texts encode, and decode, as the library does it.
void expect_as_library(const sentencepiece::SentencePieceProcessor& library,
                       const std::string& model, bool decode = true) {
  const auto tokenizer = Tokenizer::from_sentencepiece(model);
  ASSERT_EQ(tokenizer->vocab_size(), library.GetPieceSize());

  std::vector<std::string> texts = sentences();
  std::mt19937 random(5);
  for (int k = 0; k < 500; ++k) texts.push_back(random_text(random));
  for (const std::string& text : texts) {
    SCOPED_TRACE("\"" + text + "\"");
    const std::vector<int> expected = library.EncodeAsIds(text);
    const Ids ids = tokenizer->encode(text, {.add_special = false, .parse_special = false});
    ASSERT_EQ(ids, Ids(expected.begin(), expected.end()));
    testing_support::expect_streaming(tokenizer, ids);
    const bool has_unknown = std::find(ids.begin(), ids.end(), library.unk_id()) != ids.end();
    // The library writes unknown pieces as U+2047, we (as transformers) as they are called.
    if (decode && !has_unknown) {
      ASSERT_EQ(tokenizer->decode(ids), library.DecodeIds(expected));
    }
  }
}

TEST_P(SentencePiece, EncodesAndDecodesAsTheLibrary) {
  const std::string model = trained(GetParam());
  sentencepiece::SentencePieceProcessor library;
  ASSERT_TRUE(library.LoadFromSerializedProto(model).ok());
  expect_as_library(library, model);
}

TEST_P(SentencePiece, UnusedPiecesComeApartAsTheLibraryTakesThem) {
  sentencepiece::SentencePieceProcessor library;
  ASSERT_TRUE(library.LoadFromSerializedProto(trained(GetParam())).ok());
  std::vector<std::string> used;
  bool has_bytes = false;
  for (int id = 0; id < library.GetPieceSize(); ++id) {
    has_bytes |= library.IsByte(id);
    if (id % 3 != 0 || library.IsByte(id)) used.push_back(library.IdToPiece(id));
  }
  const std::vector<absl::string_view> names(used.begin(), used.end());
  ASSERT_TRUE(library.SetVocabulary(names).ok());
  int unused = 0;
  for (int id = 0; id < library.GetPieceSize(); ++id) unused += library.IsUnused(id);
  ASSERT_GE(unused, 5);
  // The library makes ordinary pieces of bytes there, and decodes them as such.
  expect_as_library(library, library.serialized_model_proto(), !has_bytes);
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, SentencePiece,
    testing::Values("--model_type=bpe --vocab_size=100", "--model_type=unigram --vocab_size=90",
                    "--model_type=bpe --vocab_size=360 --byte_fallback=true",
                    "--model_type=unigram --vocab_size=360 --byte_fallback=true",
                    "--model_type=bpe --vocab_size=110 --user_defined_symbols=<s2>,ll,▁the "
                    "--control_symbols=[X]",
                    "--model_type=unigram --vocab_size=110 --user_defined_symbols=<s2>,ll,wor",
                    "--model_type=bpe --vocab_size=100 --normalization_rule_name=identity "
                    "--remove_extra_whitespaces=false",
                    "--model_type=bpe --vocab_size=360 --byte_fallback=true --split_digits=true "
                    "--normalization_rule_name=identity --remove_extra_whitespaces=false "
                    "--allow_whitespace_only_pieces=true",
                    "--model_type=bpe --vocab_size=100 --add_dummy_prefix=false",
                    "--model_type=unigram --vocab_size=90 --add_dummy_prefix=false "
                    "--remove_extra_whitespaces=false",
                    "--model_type=unigram --vocab_size=90 --normalization_rule_name=nfkc_cf",
                    "--model_type=bpe --vocab_size=100 --split_by_whitespace=false"));

}  // namespace
}  // namespace kvatlas::model
