// SPDX-License-Identifier: Apache-2.0
// The program's words and exit codes, on a model of a few numbers: 0 done, 1 failed, 2 wrong usage,
// 3 unreadable input.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <sstream>
#include <string>
#include <unistd.h>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/str.hpp"
#include "calibrate/policy/policy.hpp"
#include "tests/support/text_of.hpp"
#include "tests/unit/command_line/fixture.hpp"
#include "tests/unit/profile/samples.hpp"

namespace kvatlas {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::ContainsRegex;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;
using namespace testing_support;

/// A copy of the program, with its libraries but without the viewer, stands for a build without Qt.
TEST_F(CommandLine, ViewersCommandsAreKnownWithoutTheViewer) {
  namespace fs = std::filesystem;
  const fs::path program = fs::path(write_file("bin/note", "")).replace_filename("kvatlas");
  const fs::path build = fs::path(kvatlas_program()).parent_path().parent_path();
  fs::copy_file(kvatlas_program(), program);
  fs::create_directory_symlink(build / "lib", program.parent_path().parent_path() / "lib");
  for (const std::string command : {"view", "render", "report"}) {
    const Finished help = run_program({program.string(), command, "--help"});
    EXPECT_EQ(help.status, 0);
    EXPECT_THAT(help.out, HasSubstr("Example"));
    const Finished started = run_program({program.string(), command});
    EXPECT_EQ(started.status, 1);
    EXPECT_THAT(started.err, AllOf(StartsWith("kvatlas: '" + command + "' needs "),
                                   HasSubstr("which this build lacks: install Qt 6")));
  }
  // Nor has the copy what runs models.
  const Finished profiled = run_program({program.string(), "profile", "--help"});
  EXPECT_EQ(profiled.status, 1);
  EXPECT_THAT(profiled.err, AllOf(StartsWith("kvatlas: 'profile' needs "),
                                  HasSubstr("kvatlas-engine, which is a part of this program")));
  const Finished refused = run_program({program.string(), "render", "--share", "nan"});
  EXPECT_EQ(refused.status, 2);
  EXPECT_THAT(refused.err, HasSubstr("Value nan is no number (see kvatlas render --help)"));
}

TEST_F(CommandLine, StartsWithoutLibTorch) {
  const Finished loaded =
      run_program({"/usr/bin/env", "LD_TRACE_LOADED_OBJECTS=1", kvatlas_program()});
  EXPECT_EQ(loaded.status, 0);
  EXPECT_THAT(loaded.out, AllOf(HasSubstr("libc.so"), Not(HasSubstr("torch"))));
}

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
  EXPECT_THAT(refusal(2, {"frobnicate"}),
              AllOf(HasSubstr("no command 'frobnicate'"), Not(HasSubstr("did you mean"))));
  EXPECT_THAT(refusal(2, {"calibarte"}),
              HasSubstr("; did you mean calibrate? (see kvatlas --help)"));
  // The unknown word comes first: it may be the one that is missing.
  EXPECT_THAT(refusal(2, {"profile", "--modle", "m", "-o", "p.h5"}),
              HasSubstr("there is no option --modle; did you mean --model? (see kvatlas profile"));
  EXPECT_THAT(refusal(2, {"inspect", "--jsno", "m"}), HasSubstr("did you mean --json?"));
  EXPECT_THAT(refusal(2, {"evaluate", "--model", "m", "--polcy=full"}),
              HasSubstr("; did you mean --policy?"));
  EXPECT_THAT(refusal(2, {"calibrate", "al"}),
              HasSubstr("no command 'calibrate al' (see kvatlas calibrate --help)"));
  EXPECT_THAT(refusal(2, {"--frobnicate"}), HasSubstr("--frobnicate"));
  EXPECT_THAT(refusal(2, {"inspect"}), HasSubstr("kvatlas inspect --help"));
  EXPECT_THAT(refusal(2, {"inspect", model(), "--colour"}), HasSubstr("--colour"));
  EXPECT_THAT(refusal(2, {"profile", "-m", "m", "-o", "p.h5", "--lengths", "512", "1024"}),
              HasSubstr("'1024' is not expected here: a list is one word, with commas"));
}

TEST_F(CommandLine, NanIsNoShare) {
  EXPECT_THAT(refusal(2, {"calibrate", "pod", "-p", "x.h5", "--tau", "nan"}),
              HasSubstr("--tau: Value nan is no number"));
  EXPECT_THAT(refusal(2, {"calibrate", "simlayerkv", "-p", "x.h5", "--threshold", "-NaN"}),
              HasSubstr("--threshold: Value nan is no number"));
  EXPECT_THAT(refusal(2, {"calibrate", "pod", "-p", "x.h5", "--save", "0.7"}),
              HasSubstr("--save: Value 0.7 not in range 0 to 0.5"));
  EXPECT_THAT(refusal(2, {"calibrate", "pod", "-p", "x.h5", "--deltas", "0.1,nan"}),
              HasSubstr("--deltas: Value nan is no number"));
}

TEST_F(CommandLine, RefusesWhatIsNoModel) {
  EXPECT_THAT(refusal(2, {"inspect", "some-org/Some-Model-7B"}),
              HasSubstr("nothing is downloaded"));
  EXPECT_THAT(refusal(3, {"inspect", "./absent.gguf"}), HasSubstr("no file or folder"));
  EXPECT_THAT(refusal(3, {"inspect", write_file("text.gguf", "hello")}),
              HasSubstr("not a GGUF file"));
  write_file("model/model.safetensors", std::string(7, '\xff'));
  EXPECT_THAT(refusal(3, {"inspect", model()}), HasSubstr("/model.safetensors': "));
}

TEST_F(CommandLine, InspectSaysWhatToDoWithFilesThatAreCut) {
  for (const auto& file :
       {write_file("cut", "abc"), write_file("cut.gguf", "GGUF"),
        write_file("cut.json", R"({"schema": "kvatlas.policy/1.0", "model": {"name": "Ti)")})
    EXPECT_THAT(refusal(3, {"inspect", file}),
                AllOf(StartsWith("kvatlas: '" + file + "': "),
                      HasSubstr("; the file seems to be cut off: copy or download it again")));
}

TEST_F(CommandLine, InspectTakesNoFileForCutBecauseOfItsWords) {
  const auto file = write_file("whole.json", R"({"schema": "it is cut"})");
  EXPECT_THAT(refusal(3, {"inspect", file}),
              AllOf(StartsWith("kvatlas: '" + file + "': "), HasSubstr("it is cut"),
                    Not(HasSubstr("download it again"))));
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

TEST_F(CommandLine, InspectCountsACacheInARuntimesPages) {
  const auto memory = [&](const std::vector<std::string>& more) {
    std::vector<std::string> words = {"inspect", model(), "--context", "300", "--json"};
    words.insert(words.end(), more.begin(), more.end());
    const Finished finished = run_kvatlas(words);
    EXPECT_EQ(finished.status, 0) << finished.err;
    return json::parse(finished.out).at("memory");
  };
  const json plain = memory({}).at("formats"), in_pages = memory({"--as", "llama.cpp"});
  EXPECT_EQ(plain.at(0).at("layers").at(0).at("tokens"), 300);
  EXPECT_EQ(in_pages.at("runtime"), "llama.cpp");
  const json& formats = in_pages.at("formats");
  EXPECT_EQ(formats.at(0).at("layers").at(0).at("tokens"), 512);
  EXPECT_EQ(formats.at(0).at("sequence_bytes").get<double>() / 512,
            plain.at(0).at("sequence_bytes").get<double>() / 300);
  EXPECT_EQ(formats.at(1).at("format"), "q8_0");
  EXPECT_EQ(formats.at(1).at("sequence_bytes").get<double>(),
            formats.at(0).at("sequence_bytes").get<double>() * 8.5 / 16);
  EXPECT_EQ(memory({"--new-tokens", "212"}).at("formats").at(0).at("sequence_bytes"),
            formats.at(0).at("sequence_bytes"));

  const double sequence = plain.at(0).at("sequence_bytes").get<double>();
  const auto fits = memory({"--weights", "1MiB", "--memory", "2MiB", "--batch", "3"});
  EXPECT_EQ(fits.at("columns").back(), "context that fits");
  EXPECT_EQ(fits.at("rows").at(0).at(4), std::to_string(int(double(1 << 20) / sequence)));
  EXPECT_EQ(fits.at("rows").at(0).at(5),
            std::to_string(int(double(1 << 20) / 3 / (sequence / 300))));
  EXPECT_EQ(memory({"--weights", "2MiB", "--memory", "1MiB"}).at("rows").at(0).at(4), "none");

  EXPECT_THAT(refusal(2, {"inspect", model(), "--context", "300", "--as", "ollama"}),
              HasSubstr("no runtime 'ollama'"));
  EXPECT_THAT(refusal(2, {"inspect", model(), "--context", "300", "--model", model()}),
              HasSubstr("--model is for a policy"));
  EXPECT_THAT(refusal(3, {"inspect", "absent.json", "--context", "300", "--model", model()}),
              HasSubstr("there is no file or folder 'absent.json'"));
  EXPECT_THAT(refusal(2, {"inspect", "snapk:budget=64"}), HasSubstr("did you mean snapkv?"));
}

TEST_F(CommandLine, PoolsOfUnlikeLayersAreNotCounted) {
  const auto config = write_file("hybrid/config.json", json{{"model_type", "new"},
                                                            {"num_hidden_layers", 4},
                                                            {"num_attention_heads", 2},
                                                            {"hidden_size", 32},
                                                            {"full_attention_interval", 4}}
                                                           .dump());
  EXPECT_THAT(refusal(2, {"inspect", config, "--context", "300", "--as", "vllm"}),
              HasSubstr("some of this model's have no attention"));
  EXPECT_EQ(run_kvatlas({"inspect", config, "--context", "300", "--as", "llama.cpp"}).status, 0);
}

TEST_F(CommandLine, ImportsAMinferencePattern) {
  const auto file = write_file("pattern.json", R"([{"0": ["stream_llm", 4, 60, 1]}])");
  const auto output = file + ".policy";
  const Finished done = run_kvatlas(
      {"import", "minference", file, "--config", model() + "/config.json", "-o", output});
  EXPECT_EQ(done.status, 0) << done.err;
  const json document = json::parse(testing_support::text_of(output));
  EXPECT_EQ(document.at("heads").at("settings"), (json{{"initial", 4}, {"recent", 60}}));
}

TEST_F(CommandLine, ImportRefusesWrongWords) {
  const auto file = write_file("heads.json", R"({"0-0": [1]})");
  const auto output = file + ".policy";
  const auto said = [&](int status, std::vector<std::string> words) {
    words.insert(words.begin(), "import");
    words.insert(words.end(), {"-o", output});
    return refusal(status, words);
  };
  EXPECT_THAT(said(2, {"snapkv", file}), HasSubstr("snapkv"));
  EXPECT_THAT(said(2, {"headkv", file}), HasSubstr("give --share"));
  EXPECT_THAT(said(2, {"headkv", file, "--share", "1.5"}), HasSubstr("--share"));
  EXPECT_THAT(said(2, {"headkv", file, "--sparsity", "1"}), HasSubstr("for duo-attention alone"));
  EXPECT_THAT(said(2, {"minference", file, "--share", "1"}), HasSubstr("for headkv alone"));
  EXPECT_THAT(said(2, {"minference", file, "--threshold", "1"}), HasSubstr("have kinds"));
  EXPECT_THAT(said(2, {"headkv", file, "--threshold", "1", "--share", "1"}),
              HasSubstr("give one of them"));
  EXPECT_THAT(said(2, {"duo-attention", file}), HasSubstr("expected a folder"));
  EXPECT_THAT(said(3, {"headkv", file + ".none", "--share", "1"}), HasSubstr(".none"));
  EXPECT_THAT(said(2, {"headkv", file, "--share", "1"}), HasSubstr("give --kv-heads"));
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
  EXPECT_EQ(card.at("texts"), 2);
  EXPECT_EQ(card.at("samples_without_scoring"), 0);
  EXPECT_EQ(card.at("complete"), true);
  EXPECT_EQ(card.at("model").at("layers"), make_header(3).n_layers);
  EXPECT_EQ(card.at("capture"), json::parse(make_header(3).capture));
  EXPECT_EQ(card.at("samples_by_task").size(), 2u);
  EXPECT_EQ(card.at("arrays").size(), make_header(3).arrays.size());
  EXPECT_THAT(run_kvatlas({"inspect", both}).out,
              AllOf(HasSubstr("3 of 2 texts, complete"), HasSubstr("2 x needle, 300 tokens"),
                    HasSubstr("rows = 64"), HasSubstr("js/divergence: head x layer x layer")));
  EXPECT_THAT(run_kvatlas({"inspect", a}).out, HasSubstr("2 of 3, unfinished"));
  EXPECT_THAT(run_kvatlas({"inspect", b}).out, HasSubstr(", in 1 sample\n"));

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
  EXPECT_THAT(finished.err,
              ContainsRegex("cpu \\(no GPU: .+\\), float32, weights resident .*, at most about "));
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
  for (const char* option : {"--prompt", "--prompts", "--memory-budget", "--device"})
    EXPECT_THAT(refuses(2, {option, ""}), HasSubstr(str(option, ": is empty")));
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
  for (const char* device : {"cuda:x", "cuda:-1", "cuda2", "cuda:1:2"})
    EXPECT_THAT(refuses(2, {"--prompts", good, "--device", device}), HasSubstr("cuda:N")) << device;
  EXPECT_THAT(refuses(2, {"--prompts", good, "--chat", "x"}), HasSubstr("chatml"));
  EXPECT_THAT(refuses(2, {"--prompts", good, "--memory-budget", "1 lot"}), HasSubstr("24GiB"));
  EXPECT_THAT(refuses(1, {"--prompts", good, "--memory-budget", "1MiB"}), HasSubstr("too small"));
}

TEST_F(CommandLine, GenerateObeysTheEnvironmentsInstructionSet) {
  const auto prompts = write_file("p.jsonl", "{\"tokens\": [1, 2]}\n");
  setenv("KVATLAS_CPU", "sse5", 1);
  const Finished finished = run_kvatlas({"generate", "--model", model(), "--prompts", prompts});
  unsetenv("KVATLAS_CPU");
  EXPECT_EQ(finished.status, 2);
  EXPECT_THAT(finished.err, HasSubstr("KVATLAS_CPU: unknown instruction set 'sse5'"));
}

TEST_F(CommandLine, ProfileRefusesBeforeItRuns) {
  const auto refuses = [&](int status, std::vector<std::string> more) {
    more.insert(more.begin(),
                {"profile", "--model", model(), "-o", model() + "/p.h5", "--prompts"});
    return refusal(status, more);
  };
  const auto good = write_file("c", "{\"tokens\": [1, 2]}\n");
  EXPECT_THAT(refuses(1, {good, "--memory-budget", "1MiB", "--dry-run"}), HasSubstr("too small"));
  const auto zero = write_file("z", "{\"id\": \"a\\u0000\", \"tokens\": [1, 2]}\n");
  EXPECT_THAT(refuses(2, {zero, "--dry-run"}), HasSubstr("a?: its id, task or an answer"));
}

/// A policy document for a model of so many layers.
calibrate::Document policy_document(std::int64_t layers) {
  calibrate::Document document;
  document.model = {"Other",
                    "llama",
                    "0123456789abcdef",
                    layers,
                    TinySizes::heads,
                    TinySizes::kv_heads,
                    TinySizes::head_dim};
  document.provenance = {"fedcba9876543210", 5, {12}, {"needle"}, {}, {}, 0, "0.1.0"};
  document.sections["lagkv"] =
      calibrate::section_of(calibrate::LagKv{.sink = 2, .lag = 4, .ratio = "1/2"});
  return document;
}

TEST_F(CommandLine, DiffTellsChangesAndRefusesUnlikeFiles) {
  using namespace profile::testing_samples;
  const std::string a = write_file("a.h5", ""), b = write_file("b.h5", "");
  for (const auto& file : {a, b}) std::filesystem::remove(file);
  write_range(a, make_header(3), 0, 3);
  auto other = make_header(3);
  other.model_name = "smaller";
  other.n_kv_heads = 1;
  write_range(b, other, 0, 3);
  EXPECT_THAT(refusal(2, {"diff", a, b}), HasSubstr("only models of one shape are compared"));

  const std::string one = write_file("one.json", ""), two = write_file("two.json", "");
  auto document = policy_document(1);
  calibrate::write_document(document, one, true);
  document.sections["lagkv"] =
      calibrate::section_of(calibrate::LagKv{.sink = 2, .lag = 8, .ratio = "1/2"});
  calibrate::write_document(document, two, true);
  EXPECT_THAT(refusal(2, {"diff", one, a}),
              AllOf(HasSubstr("one.json' is a policy"), HasSubstr("a.h5' is a profile")));
  const Finished changed = run_kvatlas({"diff", one, two, "--exit-code", "--json"});
  EXPECT_EQ(changed.status, 4);
  EXPECT_THAT(changed.out, AllOf(HasSubstr("lag"), HasSubstr("\"changes\"")));
  EXPECT_EQ(run_kvatlas({"diff", one, two}).status, 0);
  EXPECT_EQ(run_kvatlas({"diff", one, one, "--exit-code"}).status, 0);
}

TEST_F(CommandLine, EvaluateRefusesWhatItCannotJudge) {
  const auto prompts =
      write_file("p.jsonl", "{\"id\": \"a\", \"tokens\": [1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3]}\n");
  const auto refuses = [&](int status, std::vector<std::string> more) {
    more.insert(more.begin(), {"evaluate", "--model", model()});
    return refusal(status, more);
  };
  const auto refuses_policy = [&](int status, const std::string& policy,
                                  std::vector<std::string> more = {}) {
    more.insert(more.begin(), {"--prompts", prompts, "--policy", policy});
    return refuses(status, more);
  };
  const auto document = [&](const std::string& name, std::int64_t layers) {
    return write_file(name, calibrate::document_text(policy_document(layers)));
  };
  EXPECT_THAT(refusal(2, {"evaluate", "--policy", "full"}), HasSubstr("--model is missing"));
  EXPECT_THAT(refusal(2, {"evaluate", "--endpoint", "http://127.0.0.1:1", "--as", "vllm"}),
              HasSubstr("beside --endpoint there is no --against, --as"));
  EXPECT_THAT(refusal(2, {"evaluate", "--endpoint", "http://127.0.0.1:1"}),
              HasSubstr("two servers are compared"));
  EXPECT_THAT(refuses_policy(2, "nonsense"),
              AllOf(HasSubstr("no policy 'nonsense'"), HasSubstr("streaming")));
  EXPECT_THAT(refuses_policy(2, "streaming:recnt=4"),
              AllOf(HasSubstr("'recnt'"), HasSubstr("initial, recent")));
  EXPECT_THAT(refuses_policy(2, "quest+kv4"), HasSubstr("stands alone"));
  EXPECT_THAT(refuses_policy(2, "window:recent=4", {"--against", "full,h2o:budget=x"}),
              HasSubstr("budget=x"));
  EXPECT_THAT(refuses_policy(3, "absent.json"), HasSubstr("no file 'absent.json'"));
  EXPECT_THAT(refuses_policy(3, write_file("broken.json", "{\"schema\": ")),
              HasSubstr("broken.json"));
  EXPECT_THAT(refuses_policy(2, document("other.json", 3)),
              AllOf(HasSubstr("other.json"), HasSubstr("3 layers"), HasSubstr("this model has 1")));
  EXPECT_THAT(refuses_policy(2, "window:recent=4", {"--as", "toaster"}),
              AllOf(HasSubstr("no runtime 'toaster'"), HasSubstr("vllm")));
  EXPECT_THAT(refuses_policy(2, "window:recent=4", {"--compress-context"}),
              AllOf(HasSubstr("a: "), HasSubstr("context and a question")));
  EXPECT_THAT(refuses_policy(2, "window:recent=4", {"--conversation"}),
              HasSubstr("prompts of several turns"));
  EXPECT_THAT(refuses_policy(2, "window:recent=4", {"-o", prompts + ".out"}),
              HasSubstr("exactly one document"));
  EXPECT_THAT(refuses_policy(2, document("same.json", 1), {"-o", prompts}), HasSubstr("--force"));
  auto bits_alone = policy_document(1);
  bits_alone.sections.clear();
  bits_alone.kv_bits = 4;
  EXPECT_THAT(refuses_policy(2, write_file("kv4.json", calibrate::document_text(bits_alone)),
                             {"-o", prompts + ".out"}),
              HasSubstr("leave out -o"));
  EXPECT_THAT(refuses_policy(2, "window:recent=4", {"--new", "-1"}), HasSubstr("--new"));
  EXPECT_THAT(refuses_policy(3, "pod:blocks=" + prompts), HasSubstr("p.jsonl"));
  auto no_blocks = policy_document(1);
  no_blocks.sections["pod"] = calibrate::section_of(calibrate::Pod{});
  EXPECT_THAT(refuses_policy(
                  2, "pod:blocks=" + write_file("pod.json", calibrate::document_text(no_blocks))),
              HasSubstr("its section 'pod' holds no blocks"));
  EXPECT_THAT(refuses(3, {"--prompts", write_file("empty.jsonl", ""), "--policy", "kv4"}),
              HasSubstr("no prompts"));
  EXPECT_THAT(
      refuses(3, {"--prompts", write_file("none.jsonl", "{\"tokens\": []}"), "--policy", "kv4"}),
      HasSubstr("none.jsonl:1"));
  EXPECT_THAT(refuses(2, {"--policy", "kv4"}), HasSubstr("tokenizer"));
}

TEST_F(CommandLine, EvaluateJudgesPromptsWithoutAnswers) {
  const auto prompts =
      write_file("p.jsonl", "{\"id\": \"a\", \"tokens\": [1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3]}\n");
  const std::string document =
      write_file("policy.json", calibrate::document_text(policy_document(1)));
  const std::vector<std::string> words{"evaluate",  "--model",      model(),
                                       "--prompts", prompts,        "--new",
                                       "3",         "--ignore-eos", "--policy",
                                       document,    "--against",    "window:recent=4,h2o:budget=6"};
  const auto run = [&](const std::vector<std::string>& more) {
    auto all = words;
    all.insert(all.end(), more.begin(), more.end());
    Finished finished = run_kvatlas(all);
    EXPECT_EQ(finished.status, 0) << finished.err;
    return finished;
  };
  const Finished table = run({});
  EXPECT_THAT(table.out, AllOf(HasSubstr("KV saved"), HasSubstr("66.7 %"), HasSubstr("  -  ")));
  EXPECT_THAT(table.err, HasSubstr("another model file (Other) of the same shape"));
  EXPECT_THAT(table.err, HasSubstr(" beside full on 1 prompt, about "));
  EXPECT_THAT(table.err, HasSubstr("next: the same command with -o measured.json"));

  const json result = json::parse(run({"--json"}).out);
  EXPECT_EQ(result.at("samples"), 1);
  ASSERT_EQ(result.at("policies").size(), 4u);
  for (const auto& policy : result.at("policies")) {
    SCOPED_TRACE(policy.at("policy"));
    EXPECT_EQ(policy.at("samples"), 0);
    EXPECT_EQ(policy.at("score").at("mean"), nullptr);
    EXPECT_EQ(policy.at("loss").at("mean"), nullptr);
    EXPECT_TRUE(policy.at("kl").at("mean").is_number());
    EXPECT_TRUE(policy.at("agreement").at("mean").is_number());
    EXPECT_TRUE(policy.at("ms_per_token").is_number());
    EXPECT_TRUE(policy.at("kept_share").is_number());
    EXPECT_GE(policy.at("full_read_bytes_per_token"), policy.at("read_bytes_per_token"));
  }
  EXPECT_EQ(result.at("policies")[2].at("policy"), "window:recent=4");
  EXPECT_NEAR(result.at("policies")[2].at("kept_share").get<double>(), 1.0 / 3, 1e-9);
  EXPECT_EQ(result.at("model").at("name"),
            json::parse(run_kvatlas({"inspect", model(), "--json"}).out).at("name"));

  const std::string lines = run({"--json", "--generations"}).out;
  EXPECT_EQ(std::count(lines.begin(), lines.end(), '\n'), 4);
  const json first = json::parse(lines.substr(0, lines.find('\n')));
  EXPECT_EQ(first.at("policy"), "full");
  EXPECT_EQ(first.at("tokens").size(), 3u);
  EXPECT_EQ(first.at("score"), nullptr);
  EXPECT_EQ(first.at("text"), nullptr);  // without a tokenizer
  EXPECT_FALSE(first.contains("positions"));

  // Which tokens are kept.
  std::istringstream with_positions(run({"--json", "--generations", "--positions"}).out);
  std::map<std::string, json> kept;
  for (std::string line; std::getline(with_positions, line);) {
    const json one = json::parse(line);
    for (const auto& layer : one.at("positions"))
      for (const auto& head : layer) {
        std::int64_t tokens = 0;
        for (const auto& range : head)
          tokens += range.at(1).get<std::int64_t>() - range.at(0).get<std::int64_t>();
        EXPECT_LE(tokens, one.at("kept").at(0));
        kept[one.at("policy")] = head;
      }
  }
  EXPECT_EQ(kept.at("full"), json({{0, 13}}));
  EXPECT_EQ(kept.at("window:recent=4"), json({{8, 12}}));
  EXPECT_EQ(kept.at("h2o:budget=6").back().at(1), 12);

  // What was measured goes into the document.
  const std::string measured = document + ".measured";
  run({"-o", measured});
  const auto written = calibrate::read_document(measured);
  EXPECT_EQ(written.sections.at("lagkv").at("measured").at("score").at("mean"), nullptr);
  EXPECT_TRUE(written.sections.at("lagkv").at("measured").at("kept_share").is_number());
  std::vector<std::string> compared;
  for (const auto& entry : written.compared) {
    compared.push_back(entry.at("policy"));
    EXPECT_TRUE(entry.at("measured").at("kept_share").is_number());
  }
  EXPECT_THAT(compared, ElementsAre("window:recent=4", "h2o:budget=6"));
  EXPECT_THAT(run_kvatlas({"inspect", measured}).out,
              HasSubstr("\n  compared with   window:recent=4, h2o:budget=6\n"));
}

TEST_F(CommandLine, HelpBeginsWithWhatMostRunsNeed) {
  const auto help = run_kvatlas({"profile", "--help"}).out;
  const auto all = run_kvatlas({"profile", "--help-all"}).out;
  EXPECT_THAT(help, AllOf(HasSubstr("\nWhat most runs need (--help-all shows all "),
                          HasSubstr("\n  -m,--model "), HasSubstr("\nExamples:\n"),
                          HasSubstr(" --chat auto "), Not(HasSubstr("--js-rows"))));
  EXPECT_THAT(
      all, AllOf(HasSubstr("\n  -m,--model "), HasSubstr("--js-rows"), HasSubstr("\nExamples:\n")));
  const auto options = [](const std::string& text) {
    std::size_t count = 0;
    for (auto at = text.find("\n  -"); at != text.npos; at = text.find("\n  -", at + 1)) ++count;
    return count;
  };
  EXPECT_EQ(options(help), 7u);
  EXPECT_THAT(help, HasSubstr("all " + std::to_string(options(all)) + " options"));
  // The policies are listed where all is.
  EXPECT_THAT(run_kvatlas({"evaluate", "--help"}).out, Not(HasSubstr("adakv")));
  EXPECT_THAT(run_kvatlas({"evaluate", "--help-all"}).out, HasSubstr("\nadakv\n"));
  // A command without more to show takes it too.
  for (const char* name : {"check", "calibrate", "export", "doctor"})
    EXPECT_EQ(run_kvatlas({name, "--help-all"}).out, run_kvatlas({name, "--help"}).out) << name;
  EXPECT_EQ(run_kvatlas({"--help-all"}).out, run_kvatlas({"--help"}).out);
  // Options fit the lines of a terminal.
  for (const std::vector<std::string>& words : {std::vector<std::string>{"profile"},
                                                {"evaluate"},
                                                {"calibrate", "auto"},
                                                {"calibrate", "all"}}) {
    auto command = words;
    command.emplace_back("--help-all");
    const auto text = run_kvatlas(command).out;
    std::istringstream lines(
        text.substr(0, std::min(text.find("\nExamples:"), text.find("\nPolicies:"))));
    for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 100u) << line;
  }
  EXPECT_THAT(refusal(2, {"profile", "--nosuch"}), HasSubstr("(see kvatlas profile --help-all)"));
  EXPECT_THAT(refusal(2, {"calibrate", "pod", "--nosuch"}),
              HasSubstr("(see kvatlas calibrate pod --help-all)"));
  EXPECT_THAT(refusal(2, {"calibrate"}), HasSubstr("(see kvatlas calibrate --help)"));
}

TEST_F(CommandLine, EachSectionIsGivenWhatItsOwnPolicyMeasured) {
  const auto prompts =
      write_file("p.jsonl", "{\"id\": \"a\", \"tokens\": [1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3]}\n");
  // By name the sections are in another order than the policies.
  calibrate::Document document = policy_document(1);
  const auto section = [](const char* text) {
    return calibrate::section_of(calibrate::parse_policy(text).parts[0]);
  };
  document.sections["baseline"] = section("window:recent=4");
  document.sections["simlayerkv"] = section("simlayerkv:threshold=0,initial=0,recent=2");
  document.sections["simlayerkv"]["static"]["lazy_layers"] = {true};
  const auto path = write_file("policy.json", calibrate::document_text(document));
  const auto evaluated = [&](const std::string& from, std::vector<std::string> more) {
    const std::string out = from + ".measured";
    more.insert(more.begin(), {"evaluate", "--model", model(), "--prompts", prompts, "--new", "3",
                               "--ignore-eos", "--policy", from, "-o", out});
    Finished finished = run_kvatlas(more);
    EXPECT_EQ(finished.status, 0) << finished.err;
    return std::pair{out, finished.err};
  };
  const auto measured = evaluated(path, {}).first;
  const auto of = calibrate::read_document(measured).sections;
  const auto kept = [](const json& figures) { return figures.at("kept_share").get<double>(); };
  EXPECT_NEAR(kept(of.at("lagkv").at("measured")), 10.0 / 12, 1e-6);
  EXPECT_NEAR(kept(of.at("baseline").at("measured")), 4.0 / 12, 1e-6);
  EXPECT_NEAR(kept(of.at("simlayerkv").at("measured")), 2.0 / 13, 1e-6);  // cut a token later
  // As a runtime runs them: those that it takes, under its name; the static view for layers by
  // input.
  const auto [in_sglang, left_out] = evaluated(measured, {"--as", "sglang"});
  EXPECT_THAT(left_out,
              AllOf(HasSubstr("left out: SGLang cannot run 'lagkv"), HasSubstr("fixed in sglang")));
  const auto as = calibrate::read_document(in_sglang).sections;
  EXPECT_NEAR(kept(as.at("simlayerkv").at("static").at("runtimes").at("sglang")), 2.0 / 12, 1e-6);
  EXPECT_NEAR(kept(as.at("baseline").at("runtimes").at("sglang")), 4.0 / 12, 1e-6);
  EXPECT_FALSE(as.at("lagkv").contains("runtimes"));
  EXPECT_EQ(as.at("lagkv").at("measured"), of.at("lagkv").at("measured"));
}
#else
TEST_F(CommandLine, SaysThatGenerateNeedsLibTorch) {
  EXPECT_THAT(refusal(1, {"generate", "--model", model()}), HasSubstr("needs LibTorch"));
}
#endif

}  // namespace
}  // namespace kvatlas
