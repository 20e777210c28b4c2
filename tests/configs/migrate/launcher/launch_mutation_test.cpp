// Thousands of damaged launch lines, accelerate files and Trainer arguments: no crash, no message
// without text, no argument without a key.
#include <gtest/gtest.h>

#include <random>
#include <set>

#include "configs/migrate/launcher/accelerate_config.hpp"
#include "configs/migrate/launcher/training_arguments.hpp"
#include "tests/configs/migrate/launcher/launch_cases.hpp"

namespace sluice::migrate {
namespace {

const std::vector<std::string> kSeeds{
    "deepspeed -H h --include w0@w1:0,2 --master_port 7000 --ssh_port 22 t.py --bf16",
    "deepspeed --hostfile h --num_nodes 2 --num_gpus 4 --launcher slurm --launcher_args '-p x' "
    "t.py",
    "deepspeed --hostfile away --num_nodes 2 --num_gpus 4 --no_ssh --node_rank 0 t.py",
    "torchrun --nnodes 1:2 --nproc-per-node=4 --max-restarts 3 t.py",
    "accelerate launch --config_file c.yaml --num_processes 4 --zero_stage 3 t.py",
    "A=1 env B=2 python -u t.py --deepspeed ds.json",
    "--learning_rate 2e-5 --bf16 --max_steps 100 --warmup_ratio 0.1 --report_to a b "
    "--lr_scheduler_type warmup_stable_decay --lr_scheduler_kwargs '{\"num_decay_steps\": 9, "
    "\"decay_type\": \"linear\", \"num_stable_steps\": 3}' --save_steps 0.5",
    "{\"learning_rate\": 1e-4, \"max_steps\": 10, \"fsdp\": [], \"lr_scheduler_kwargs\": {\"a\": "
    "1}, \"eval_strategy\": \"steps\", \"per_device_train_batch_size\": 8}",
    "distributed_type: DEEPSPEED\nnum_machines: 2\nnum_processes: 8\nmixed_precision: bf16\n"
    "deepspeed_config:\n  zero_stage: 3\n  deepspeed_hostfile: h\n  gradient_clipping: 0\n"
    "  deepspeed_multinode_launcher: nossh\n",
};

const std::vector<std::string> kPieces{
    "=",
    " ",
    "\n",
    "'",
    "\"",
    "\\",
    "--",
    "-1",
    "0",
    "1e99",
    "none",
    "null",
    "true",
    "99999999999999999999",
    "2.5",
    "@",
    ":",
    ",",
    "{",
    "}",
    "[",
    "]",
    "#",
    "auto",
    "standard",
    "pdsh",
    "nvme",
    "--num_gpus 9223372036854775807",
    "--num_nodes 9223372036854775807",
    " --max_steps 9223372036854775807",
    " --warmup_steps 1e300",
    "\xff",
    "w0:1@w1",
    "\n  a: &x [*x]",
    "num_stable_steps\": 9223372036854775807, \"",
};

std::string damaged(std::mt19937& random) {
  const auto below = [&random](std::size_t n) { return random() % n; };
  std::string text = kSeeds[below(kSeeds.size())];
  for (std::size_t i = 0, n = 1 + below(3); i < n; ++i) {
    const std::size_t at = below(text.size() + 1);
    switch (below(3)) {
      case 0:
        text.insert(at, kPieces[below(kPieces.size())]);
        break;
      case 1:
        text.erase(at, 1 + below(6));
        break;
      default:
        text.replace(at, below(4), kPieces[below(kPieces.size())]);
    }
  }
  return text;
}

void expect_texts(const std::vector<MigrationError>& errors) {
  for (const MigrationError& error : errors) EXPECT_GT(error.text.size(), 10U) << error.text;
}

TEST(LaunchMutation, NeitherCrashesNorKeepsSilent) {
  const TextReader read = reader_of({{"h", "w0 slots=4\nw1 slots=4\n"}, {"c.yaml", kSeeds.back()}});
  std::mt19937 random(16);
  for (int i = 0; i < 1500; ++i) {
    const std::string text = damaged(random);
    SCOPED_TRACE(text);
    Migration migration;
    MigrationDraft draft(migration);
    expect_texts(map_launch_line(text, {.read = read}, draft).errors);

    const TrainerValues values = read_training_arguments(text, "a.json");
    expect_texts(values.errors);
    const TrainerContext context{.has_deepspeed = i % 2 == 0, .world = 8, .hidden = 64};
    Migration trained;
    MigrationDraft trainer(trained);
    map_trainer(values, context, trainer);
    std::set<std::string> paths;
    for (const MigratedKey& key : trained.keys) EXPECT_TRUE(paths.insert(key.path).second);
    for (const TrainerArgument& argument : values.given) {
      EXPECT_TRUE(paths.contains(argument.path())) << argument.name;
    }
    const HjsonNode deepspeed = read_hjson(text).root;
    expect_texts(trainer_mismatches(values, context, deepspeed, "ds.json"));

    const AccelerateFile file = read_accelerate_file(text, "c.yaml");
    expect_texts(file.errors);
    if (!file.errors.empty()) continue;
    Migration accelerated;
    MigrationDraft accelerate(accelerated);
    expect_texts(map_accelerate_deepspeed(file, {.read = read}, accelerate).errors);
  }
}

}  // namespace
}  // namespace sluice::migrate
