#include "configs/migrate/peers/fsdp.hpp"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "configs/migrate/write_yaml.hpp"
#include "tests/configs/migrate/peers/peer_result.hpp"

namespace sluice::migrate {
namespace {

// A file of `accelerate config`; `section` are lines of fsdp_config.
std::string file_of(const std::string& section, const std::string& rest = "") {
  return "compute_environment: LOCAL_MACHINE\ndistributed_type: FSDP\nnum_machines: 1\n"
         "num_processes: 8\n" +
         rest + "fsdp_config:\n" + section;
}

TEST(Fsdp, AFileOfFsdp2BecomesAConfiguration) {
  Migration result = migrate_fsdp(file_of("  fsdp_version: 2\n"
                                          "  fsdp_reshard_after_forward: true\n"
                                          "  fsdp_offload_params: true\n"
                                          "  fsdp_activation_checkpointing: true\n"
                                          "  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n"
                                          "  fsdp_state_dict_type: SHARDED_STATE_DICT\n",
                                          "mixed_precision: BF16\n"),
                                  {.file = "fsdp.yaml"});
  EXPECT_EQ(problems_of(result), "");
  EXPECT_EQ(result.world, 8);
  check_result(result);
  EXPECT_EQ(problems_of(result), "");
  const auto lines = lines_of(result);
  EXPECT_EQ(lines.at("zero.stage"), "3");
  EXPECT_EQ(lines.at("offload.optimizer"), "host");
  EXPECT_EQ(lines.at("offload.parameters"), "host");
  EXPECT_EQ(lines.at("offload.gradients"), "host");
  EXPECT_EQ(lines.at("recompute.mode"), "full");
  EXPECT_EQ(lines.at("train.dtype"), "bf16");
  EXPECT_EQ(key_of(result, "mixed_precision").kind, KeyClass::kChanged);
  EXPECT_EQ(key_of(result, "fsdp_config.fsdp_state_dict_type").kind, KeyClass::kNotNeeded);
  EXPECT_EQ(key_of(result, "fsdp_config.fsdp_version").place.line, 7);
  EXPECT_EQ(result.effective.at("fsdp_config.fsdp_min_num_params"), "100000000");
}

TEST(Fsdp, WorldMustBeTheNumberOfProcesses) {
  const std::string file = file_of("  fsdp_version: 2\n");
  EXPECT_EQ(problems_of(migrate_fsdp(file, {.file = "fsdp.yaml", .world = 8})), "");
  EXPECT_EQ(problems_of(migrate_fsdp(file, {.file = "fsdp.yaml", .world = 4})),
            "fsdp.yaml: the job starts 8 ranks, and --world gives 4; leave one of the two out");
}

TEST(Fsdp, StrategiesBecomeStages) {
  struct Case {
    std::string section;
    std::string stage;
    KeyClass kind;
    std::string path;
  };
  const std::string strategy = "fsdp_config.fsdp_sharding_strategy";
  const std::string reshard = "fsdp_config.fsdp_reshard_after_forward";
  const std::vector<Case> cases{
      {"  fsdp_sharding_strategy: FULL_SHARD\n", "3", KeyClass::kMapped, strategy},
      {"  fsdp_sharding_strategy: 1\n", "3", KeyClass::kMapped, strategy},
      {"  fsdp_sharding_strategy: SHARD_GRAD_OP\n", "2", KeyClass::kChanged, strategy},
      {"  fsdp_sharding_strategy: no_shard\n", "0", KeyClass::kMapped, strategy},
      {"  fsdp_sharding_strategy: HYBRID_SHARD\n", "3", KeyClass::kChanged, strategy},
      {"  sharding_strategy: NO_SHARD\n", "0", KeyClass::kMapped, strategy},
      {"  fsdp_version: 1\n  fsdp_reshard_after_forward: false\n", "3", KeyClass::kIgnored,
       reshard},
      {"  fsdp_version: 2\n  fsdp_reshard_after_forward: false\n", "2", KeyClass::kChanged,
       reshard},
      {"  fsdp_version: 2\n  fsdp_sharding_strategy: NO_SHARD\n", "3", KeyClass::kIgnored,
       strategy},
  };
  for (const Case& each : cases) {
    const Migration result = migrate_fsdp(file_of(each.section), {.file = "f.yaml"});
    EXPECT_EQ(problems_of(result), "") << each.section;
    EXPECT_EQ(lines_of(result).at("zero.stage"), each.stage) << each.section;
    EXPECT_EQ(class_name(key_of(result, each.path).kind), class_name(each.kind)) << each.section;
  }
}

TEST(Fsdp, Fp16HasTheScalerOfPyTorch) {
  const auto lines =
      lines_of(migrate_fsdp(file_of("  fsdp_version: 1\n", "mixed_precision: fp16\n"), {}));
  EXPECT_EQ(lines.at("train.dtype"), "fp16");
  EXPECT_EQ(lines.at("loss_scale.initial"), "65536");
  EXPECT_EQ(lines.at("loss_scale.window"), "2000");
  EXPECT_EQ(lines.at("loss_scale.hysteresis"), "1");
}

TEST(Fsdp, ValuesWithoutCounterpartStop) {
  const auto stops = [](const std::string& text, const std::string& path) {
    return key_of(migrate_fsdp(text, {.file = "f.yaml"}), path).stops;
  };
  EXPECT_TRUE(stops(file_of("  fsdp_version: 1\n", "mixed_precision: fp8\n"), "mixed_precision"));
  EXPECT_TRUE(stops(file_of("  fsdp_ignored_modules: head\n"), "fsdp_config.fsdp_ignored_modules"));
  const std::string hosts =
      "distributed_type: FSDP\nnum_machines: 2\nnum_processes: 16\nfsdp_config:\n"
      "  fsdp_sharding_strategy: HYBRID_SHARD\n";
  EXPECT_TRUE(stops(hosts, "fsdp_config.fsdp_sharding_strategy"));
  EXPECT_TRUE(stops(
      file_of("  fsdp_version: 2\n", "parallelism_config:\n  parallelism_config_cp_size: 2\n"),
      "parallelism_config.parallelism_config_cp_size"));
}

TEST(Fsdp, SeveralMachinesNeedAFileOfHosts) {
  const std::string two = "distributed_type: FSDP\nnum_machines: 2\nnum_processes: 16\n";
  const Migration result = migrate_fsdp(two, {.file = "f.yaml"});
  EXPECT_EQ(lines_of(result).at("launch.nproc"), "8");
  const std::string note =
      "the job has 2 machines, and the result starts one: write their names into a file, a line "
      "each (host slots=8), and give it with --set launch.hostfile=FILE; or start with srun or "
      "torchrun (docs/launch.md); `sluice plan` needs --world 16";
  EXPECT_EQ(std::count(result.notes.begin(), result.notes.end(), note), 1);
  for (const std::string& other : migrate_fsdp(file_of(""), {.file = "f.yaml"}).notes) {
    EXPECT_EQ(other.find("machines"), std::string::npos) << other;
  }
}

TEST(Fsdp, ANoteNamesWhatTheScriptHas) {
  const auto noted = [](const std::string& text, const FsdpOptions& options) {
    for (const std::string& note : migrate_fsdp(text, options).notes) {
      if (note.find("the script") != std::string::npos) return note;
    }
    return std::string();
  };
  const std::string give = "): give them with --trainer or --set";
  EXPECT_EQ(noted(file_of(""), {.file = "f.yaml"}),
            "the script has values that the file lacks (batch, optimizer, schedule" + give);
  const std::vector<std::string> some{"train.micro_batch=2", "optimizer.lr=1e-5"};
  EXPECT_EQ(noted(file_of(""), {.file = "f.yaml", .settings = some}),
            "the script has values that the file lacks (schedule" + give);
  EXPECT_EQ(noted(file_of(""), {.file = "f.yaml", .has_trainer = true}), "");
}

TEST(Fsdp, TensorParallelRanksAreCarriedOver) {
  const auto lines =
      lines_of(migrate_fsdp(file_of("  fsdp_version: 2\n",
                                    "parallelism_config:\n  parallelism_config_tp_size: 2\n"
                                    "  parallelism_config_dp_shard_size: 4\n"),
                            {.file = "f.yaml"}));
  EXPECT_EQ(lines.at("parallel.tensor"), "2");
  EXPECT_EQ(lines.at("parallel.data"), "4");
}

TEST(Fsdp, AKeyThatAccelerateDoesNotReadIsReported) {
  const MigratedKey key = key_of(migrate_fsdp(file_of("  fsdp_offload_param: true\n"), {}),
                                 "fsdp_config.fsdp_offload_param");
  EXPECT_EQ(key.kind, KeyClass::kIgnored);
  EXPECT_EQ(key.note, "accelerate does not read the key; did you mean fsdp_offload_params?");
}

TEST(Fsdp, RefusesWithTheWholeMessage) {
  struct Refused {
    std::string text;
    std::string message;
  };
  const std::vector<Refused> cases{
      {"distributed_type: MULTI_GPU\nnum_processes: 2\n",
       "f.yaml: distributed_type is MULTI_GPU, not FSDP; give a file of FSDP"},
      {file_of("  fsdp_version: 3\n"),
       "f.yaml:6:3: fsdp_config.fsdp_version: found '3', expected 1 or 2; write one of both"},
      {file_of("  fsdp_sharding_strategy: FULL\n"),
       "f.yaml:6:3: fsdp_config.fsdp_sharding_strategy: found 'FULL', expected FULL_SHARD, "
       "SHARD_GRAD_OP, NO_SHARD, HYBRID_SHARD or HYBRID_SHARD_ZERO2; write one of these values"},
      {file_of("  fsdp_offload_params: maybe\n"),
       "f.yaml:6:3: fsdp_config.fsdp_offload_params: found 'maybe', expected true or false; "
       "write one of both"},
      {file_of("  fsdp_version: 2\n  fsdp_reshard_after_forward: FULL_SHARD\n"),
       "f.yaml:7:3: fsdp_config.fsdp_reshard_after_forward: found 'FULL_SHARD', expected true or "
       "false; write one of both"},
      {file_of("  fsdp_sync_module_states: false\n"),
       "f.yaml:6:3: fsdp_config.fsdp_sync_module_states: fsdp_cpu_ram_efficient_loading needs "
       "true, accelerate stops; write true"},
      {file_of("  fsdp_auto_wrap_policy: LAYERS\n"),
       "f.yaml:6:3: fsdp_config.fsdp_auto_wrap_policy: found 'LAYERS', expected "
       "TRANSFORMER_BASED_WRAP, SIZE_BASED_WRAP or NO_WRAP; write one of these values"},
      {file_of("  fsdp_version: 1\n", "parallelism_config:\n  parallelism_config_tp_size: 2\n"),
       "f.yaml:6:3: parallelism_config.parallelism_config_tp_size: needs fsdp_version 2, "
       "accelerate stops; leave parallelism_config out"},
  };
  for (const Refused& each : cases) {
    EXPECT_EQ(problems_of(migrate_fsdp(each.text, {.file = "f.yaml"})), each.message) << each.text;
  }
}

}  // namespace
}  // namespace sluice::migrate
