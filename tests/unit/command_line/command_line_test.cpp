// SPDX-License-Identifier: Apache-2.0
// The program's words and exit codes, on a model of a few numbers: 0 done, 1 failed, 2 wrong usage,
// 3 unreadable input.
#include <algorithm>
#include <cstdlib>
#include <string>
#include <unistd.h>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/support/run_program.hpp"
#include "tests/support/tiny_model.hpp"
#include "tests/unit/profile/samples.hpp"

namespace kvatlas {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;
using namespace testing_support;

class CommandLine : public testing::Test {
 protected:
  CommandLine() {
    folder_.write("model/config.json", tiny_hf_config("llama"));
    folder_.write("model/model.safetensors", safetensors_of(tiny_hf_tensors("llama")));
  }
  std::string model() const { return (folder_.path() / "model").string(); }
  std::string write_file(const std::string& name, const std::string& text) const {
    return folder_.write(name, text).string();
  }

  /// Runs it, expecting a refusal: nothing on stdout, one line on stderr, which is returned.
  static std::string refusal(int status, const std::vector<std::string>& arguments) {
    const Finished finished = run_kvatlas(arguments);
    EXPECT_EQ(finished.status, status) << finished.err;
    EXPECT_THAT(finished.out, IsEmpty());
    EXPECT_EQ(std::count(finished.err.begin(), finished.err.end(), '\n'), 1) << finished.err;
    EXPECT_THAT(finished.err, StartsWith("kvatlas: "));
    return finished.err;
  }

 private:
  TemporaryFolder folder_;
};

TEST_F(CommandLine, ShowsHelpAndVersion) {
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{}, std::vector<std::string>{"--help"}}) {
    const Finished finished = run_kvatlas(arguments);
    EXPECT_EQ(finished.status, 0);
    EXPECT_THAT(finished.out, AllOf(HasSubstr("generate"), HasSubstr("inspect")));
  }
  EXPECT_THAT(run_kvatlas({"--version"}).out, StartsWith("kvatlas "));
  EXPECT_THAT(run_kvatlas({"inspect", "--help"}).out, HasSubstr("Example"));
}

TEST_F(CommandLine, RefusesWrongWords) {
  EXPECT_THAT(refusal(2, {"frobnicate"}), HasSubstr("no command 'frobnicate'"));
  EXPECT_THAT(refusal(2, {"--frobnicate"}), HasSubstr("--frobnicate"));
  EXPECT_THAT(refusal(2, {"inspect"}), HasSubstr("kvatlas inspect --help"));
  EXPECT_THAT(refusal(2, {"inspect", model(), "--colour"}), HasSubstr("--colour"));
}

TEST_F(CommandLine, RefusesWhatIsNoModel) {
  EXPECT_THAT(refusal(2, {"inspect", "some-org/Some-Model-7B"}),
              HasSubstr("nothing is downloaded"));
  EXPECT_THAT(refusal(3, {"inspect", "./absent.gguf"}), HasSubstr("no file or folder"));
  EXPECT_THAT(refusal(3, {"inspect", write_file("text.gguf", "hello")}),
              HasSubstr("not a GGUF file"));
  write_file("model/model.safetensors", std::string(7, '\xff'));
  EXPECT_THAT(refusal(3, {"inspect", model()}), HasSubstr("model.safetensors"));
}

TEST_F(CommandLine, InspectPrintsTheCard) {
  const Finished finished = run_kvatlas({"inspect", model(), "--json"});
  ASSERT_EQ(finished.status, 0) << finished.err;
  const json card = json::parse(finished.out);
  EXPECT_EQ(card.at("architecture"), "llama");
  EXPECT_EQ(card.at("layers"), 1);
  EXPECT_EQ(card.at("heads"), TinySizes::heads);
  EXPECT_EQ(card.at("kv_heads"), TinySizes::kv_heads);
  EXPECT_EQ(card.at("vocab_size"), TinySizes::vocabulary);
  EXPECT_THAT(run_kvatlas({"inspect", model()}).out, HasSubstr("llama"));
}

TEST_F(CommandLine, ProfilesAreInspectedAndMerged) {
  using namespace profile::testing_samples;
  const std::string a = write_file("a.h5", ""), b = write_file("b.h5", "");
  const std::string both = a + ".both";
  for (const auto& file : {a, b}) std::filesystem::remove(file);
  write_range(a, make_header(3), 0, 2);
  write_range(b, make_header(3), 2, 3);
  ASSERT_EQ(run_kvatlas({"merge", a, b, "-o", both}).status, 0);
  const Finished finished = run_kvatlas({"inspect", both, "--json"});
  ASSERT_EQ(finished.status, 0) << finished.err;
  const json card = json::parse(finished.out);
  EXPECT_EQ(card.at("samples"), 3);
  EXPECT_EQ(card.at("complete"), true);
  EXPECT_EQ(card.at("model").at("layers"), make_header(3).n_layers);
  EXPECT_EQ(card.at("capture"), json::parse(make_header(3).capture));
  EXPECT_EQ(card.at("samples_by_task").size(), 2u);
  EXPECT_EQ(card.at("arrays").size(), make_header(3).arrays.size());
  EXPECT_THAT(run_kvatlas({"inspect", both}).out,
              AllOf(HasSubstr("3, complete"), HasSubstr("2 x needle, 300 tokens"),
                    HasSubstr("rows = 64"), HasSubstr("js/divergence: head x layer x layer")));
  EXPECT_THAT(run_kvatlas({"inspect", a}).out, HasSubstr("2 of 3, unfinished"));

  EXPECT_THAT(refusal(2, {"merge", a, b, "-o", both}), HasSubstr("--force"));
  EXPECT_EQ(run_kvatlas({"merge", a, b, "-o", both, "--force"}).status, 0);
  EXPECT_THAT(refusal(2, {"merge", a}), HasSubstr("--output"));
  EXPECT_THAT(refusal(3, {"merge", write_file("text", "x"), "-o", a + ".c"}),
              HasSubstr("not a profile"));
  EXPECT_THAT(refusal(3, {"inspect", write_file("cut.h5", file_bytes(a).substr(0, 5000))}),
              HasSubstr("cut.h5"));
  std::filesystem::create_directory(both + ".new.parts");
  std::filesystem::copy(a, both + ".new.parts/000000.h5");
  EXPECT_THAT(refusal(3, {"inspect", both + ".new"}), HasSubstr("--resume"));
}

#if KVATLAS_HAS_TORCH
TEST_F(CommandLine, GeneratesFromIdsWithoutATokenizer) {
  const auto prompts =
      write_file("p.jsonl", "{\"id\": \"a\", \"tokens\": [1, 2, 3]}\n\n{\"tokens\": [4]}\n");
  const Finished finished = run_kvatlas({"generate", "--model", model(), "--prompts", prompts,
                                         "--new", "3", "--ignore-eos", "--json"});
  ASSERT_EQ(finished.status, 0) << finished.err;
  const auto cut = finished.out.find('\n');
  const json first = json::parse(finished.out.substr(0, cut));
  const json second = json::parse(finished.out.substr(cut + 1));
  EXPECT_EQ(first.at("id"), "a");
  EXPECT_EQ(second.at("id"), "line 3");
  EXPECT_EQ(first.at("text"), nullptr);
  EXPECT_EQ(first.at("tokens").size(), 3u);
  EXPECT_EQ(first.at("top").size(), TinySizes::vocabulary);
  EXPECT_THAT(finished.err, HasSubstr("cpu, float32, weights resident"));
}

/// A pipe gives its bytes once, and the program begins anew where OMP_WAIT_POLICY is not set.
TEST_F(CommandLine, GeneratesFromAPipe) {
  unsetenv("OMP_WAIT_POLICY");
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const std::string line = "{\"tokens\": [1, 2, 3]}\n";
  ASSERT_EQ(::write(ends[1], line.data(), line.size()), static_cast<ssize_t>(line.size()));
  close(ends[1]);
  const Finished finished =
      run_kvatlas({"generate", "--model", model(), "--prompts",
                   "/dev/fd/" + std::to_string(ends[0]), "--new", "2", "--ignore-eos", "--json"});
  close(ends[0]);
  EXPECT_EQ(finished.status, 0) << finished.err;
  EXPECT_EQ(json::parse(finished.out).at("tokens").size(), 2u);
}

TEST_F(CommandLine, GenerateRefusesWhatItCannotRun) {
  const auto refuses = [&](int status, std::vector<std::string> more) {
    more.insert(more.begin(), {"generate", "--model", model()});
    return refusal(status, more);
  };
  EXPECT_THAT(refuses(2, {}), HasSubstr("--prompt"));
  EXPECT_THAT(refuses(2, {"--prompt", ""}), HasSubstr("empty"));
  EXPECT_THAT(refuses(2, {"--prompt", "x"}), HasSubstr("no tokenizer"));
  EXPECT_THAT(refuses(3, {"--prompts", "./absent.jsonl"}), HasSubstr("absent.jsonl"));
  EXPECT_THAT(refuses(3, {"--prompts", write_file("a", "{\"tokens\": [1,")}),
              HasSubstr(":1: not JSON"));
  EXPECT_THAT(refuses(3, {"--prompts", write_file("b", "{\"tokens\": [1, 10]}")}),
              AllOf(HasSubstr("line 1"), HasSubstr("vocabulary of 10")));
  const auto good = write_file("c", "{\"tokens\": [1, 2]}");
  EXPECT_THAT(refuses(2, {"--prompts", good, "--new", "-1"}), HasSubstr("--new"));
  EXPECT_THAT(refuses(2, {"--prompts", good, "--dtype", "int8"}), HasSubstr("bfloat16"));
  EXPECT_THAT(refuses(2, {"--prompts", good, "--device", "tpu"}), HasSubstr("cuda"));
  EXPECT_THAT(refuses(2, {"--prompts", good, "--chat", "x"}), HasSubstr("chatml"));
  EXPECT_THAT(refuses(2, {"--prompts", good, "--memory-budget", "1 lot"}), HasSubstr("24GiB"));
  EXPECT_THAT(refuses(1, {"--prompts", good, "--memory-budget", "1MiB"}), HasSubstr("too small"));
}
#else
TEST_F(CommandLine, SaysThatGenerateNeedsLibTorch) {
  EXPECT_THAT(refusal(1, {"generate", "--model", model()}), HasSubstr("needs LibTorch"));
}
#endif

}  // namespace
}  // namespace kvatlas
