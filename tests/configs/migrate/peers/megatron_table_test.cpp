// The table of Megatron-LM's arguments.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "configs/migrate/peers/megatron_arguments.hpp"

namespace sluice::migrate {
namespace {

using Type = MegatronArgument::Type;
using Count = MegatronArgument::Count;

TEST(MegatronArguments, AreThoseOfTheSource) {
  std::map<KeyClass, int> classes;
  std::map<Type, int> types;
  std::set<std::string_view> names;
  for (const MegatronArgument& argument : megatron_arguments()) {
    ++classes[argument.kind];
    ++types[argument.type];
    EXPECT_FALSE(argument.note.empty());
    for (const std::string_view name : argument.names) {
      EXPECT_TRUE(name.starts_with("--")) << name;
      EXPECT_TRUE(names.insert(name).second) << name << " stands there twice";
    }
    for (const std::string_view choice : argument.choices) EXPECT_FALSE(choice.empty());
  }
  // 838 arguments of the parser, and 17 that older versions had.
  EXPECT_EQ(megatron_arguments().size(), 855U);
  EXPECT_EQ(types[Type::kFlag], 262 + 51 + 12);
  EXPECT_EQ(types[Type::kSwitch], 13);
  EXPECT_EQ(types[Type::kInt], 215 + 5 + 1 + 3);
  EXPECT_EQ(types[Type::kFloat], 103 + 1);
}

TEST(MegatronArguments, HaveFormDefaultAndChoices) {
  const MegatronArgument* const style = find_megatron_argument("--lr-decay-style");
  ASSERT_NE(style, nullptr);
  EXPECT_EQ(style->fallback, "linear");
  EXPECT_EQ(style->choices, (std::vector<std::string_view>{"constant", "linear", "cosine",
                                                           "inverse-square-root", "WSD"}));
  EXPECT_EQ(find_megatron_argument("--rampup-batch-size")->count, Count::kThree);
  EXPECT_EQ(find_megatron_argument("--data-path")->count, Count::kAny);
  EXPECT_EQ(find_megatron_argument("--recompute-modules")->count, Count::kSome);
  EXPECT_EQ(find_megatron_argument("--persistent-save-interval"),
            find_megatron_argument("--save-interval"));
  EXPECT_EQ(default_json(*find_megatron_argument("--cp-comm-type")), "[\"p2p\"]");
  EXPECT_EQ(default_json(*find_megatron_argument("--lr")), "null");
  EXPECT_EQ(default_json(*find_megatron_argument("--swiglu")), "false");
  EXPECT_EQ(find_megatron_argument("--num-layer"), nullptr);
}

TEST(MegatronArguments, WordsBecomeJson) {
  const MegatronArgument& lr = *find_megatron_argument("--lr");
  EXPECT_EQ(argument_json(lr, "1e-4"), "1e-4");
  EXPECT_EQ(argument_json(lr, ".01"), "0.01");
  EXPECT_EQ(argument_json(lr, "inf"), "\"inf\"");
  EXPECT_EQ(argument_json(*find_megatron_argument("--save"), "a\"b"), "\"a\\\"b\"");
}

// Arguments that users of Megatron-LM write, each in its class.
TEST(MegatronArguments, HaveOneClass) {
  const std::map<std::string_view, KeyClass> cases{
      {"--transformer-impl", KeyClass::kNotNeeded},
      {"--attention-backend", KeyClass::kNotNeeded},
      {"--max-position-embeddings", KeyClass::kChanged},
      {"--squared-relu", KeyClass::kRefused},
      {"--kv-channels", KeyClass::kMapped},
      {"--rampup-batch-size", KeyClass::kRefused},
      {"--exit-signal-handler", KeyClass::kNotNeeded},
      {"--manual-gc", KeyClass::kNotNeeded},
      {"--no-masked-softmax-fusion", KeyClass::kNotNeeded},
      {"--lr-warmup-init", KeyClass::kMapped},
      {"--override-opt_param-scheduler", KeyClass::kNotNeeded},
      {"--override-opt-param-scheduler", KeyClass::kNotNeeded},
      {"--decoupled-lr", KeyClass::kRefused},
      {"--initial-loss-scale", KeyClass::kMapped},
      {"--accumulate-allreduce-grads-in-fp32", KeyClass::kChanged},
      {"--fp16-lm-cross-entropy", KeyClass::kRefused},
      {"--apply-query-key-layer-scaling", KeyClass::kNotNeeded},
      {"--start-weight-decay", KeyClass::kRefused},
      {"--no-save-optim", KeyClass::kRefused},
      {"--ckpt-format", KeyClass::kNotNeeded},
      {"--use-checkpoint-args", KeyClass::kRefused},
      {"--overlap-grad-reduce", KeyClass::kNotNeeded},
      {"--no-overlap-p2p-communication", KeyClass::kNotNeeded},
      {"--distributed-timeout-minutes", KeyClass::kMapped},
      {"--mock-data", KeyClass::kRefused},
      {"--data-cache-path", KeyClass::kNotNeeded},
      {"--tokenizer-type", KeyClass::kNotNeeded},
      {"--yaml-cfg", KeyClass::kRefused},
      {"--mask-prob", KeyClass::kIgnored},
      {"--DDP-impl", KeyClass::kRemoved},
  };
  for (const auto& [name, kind] : cases) {
    const MegatronArgument* const argument = find_megatron_argument(name);
    ASSERT_NE(argument, nullptr) << name;
    EXPECT_EQ(class_name(argument->kind), class_name(kind)) << name;
  }
}

}  // namespace
}  // namespace sluice::migrate
