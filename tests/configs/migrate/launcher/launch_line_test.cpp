// Launch lines of deepspeed, accelerate, torchrun and python: ranks, keys, settings, commands.
#include "configs/migrate/launcher/launch_line.hpp"

#include <gtest/gtest.h>

#include "tests/configs/migrate/launcher/launch_cases.hpp"

namespace sluice::migrate {
namespace {

using Words = std::vector<std::string>;

struct Case {
  std::string line;
  int world;
  Words keys;
  Words settings;
  Words commands;
};

const Files kFiles{{"h", "w0 slots=4\nw1 slots=4\n"},
                   {"one", "w0 slots=4\n"},
                   {"uneven", "w0 slots=4\nw1 slots=2\n"}};

void expect(const std::vector<Case>& cases, const Files& files = kFiles) {
  for (const Case& launch : cases) {
    SCOPED_TRACE(launch.line);
    Migration migration;
    MigrationDraft draft(migration);
    const LaunchLine result = map_launch_line(launch.line, {.read = reader_of(files)}, draft);
    EXPECT_EQ(texts(result.errors), Words{});
    EXPECT_EQ(texts(migration.errors), Words{});
    EXPECT_EQ(result.world, launch.world);
    EXPECT_EQ(key_lines(migration), launch.keys);
    EXPECT_EQ(settings(migration), launch.settings);
    EXPECT_EQ(result.commands, launch.commands);
  }
}

TEST(DeepSpeedLaunch, OneHost) {
  expect({
      {"deepspeed t.py", 0, {}, {}, {"./sluice train out.yaml"}},
      {"deepspeed --num_gpus 8 t.py",
       8,
       {"--num_gpus mapped"},
       {"launch.nproc=8"},
       {"./sluice train out.yaml"}},
      // An abbreviation, and the other name of an argument.
      {"deepspeed --num_g=2 t.py",
       2,
       {"--num_gpus mapped"},
       {"launch.nproc=2"},
       {"./sluice train out.yaml"}},
      {"deepspeed --num_accelerators 2 t.py",
       2,
       {"--num_gpus mapped"},
       {"launch.nproc=2"},
       {"./sluice train out.yaml"}},
      {"deepspeed --include localhost:1,3 t.py",
       2,
       {"--include mapped"},
       {"launch.nproc=2"},
       {"CUDA_VISIBLE_DEVICES=1,3 ./sluice train out.yaml"}},
      {"CUDA_VISIBLE_DEVICES=4,5,6 deepspeed t.py",
       3,
       {"CUDA_VISIBLE_DEVICES mapped"},
       {"launch.nproc=3"},
       {"CUDA_VISIBLE_DEVICES=4,5,6 ./sluice train out.yaml"}},
      // DeepSpeed drops the variable beside --num_gpus.
      {"CUDA_VISIBLE_DEVICES=4,5,6 deepspeed --num_gpus 2 t.py",
       2,
       {"CUDA_VISIBLE_DEVICES mapped", "--num_gpus mapped"},
       {"launch.nproc=2"},
       {"./sluice train out.yaml"}},
      {"deepspeed -H one --master_port 1 t.py",
       4,
       {"--hostfile mapped", "--master_port not_needed"},
       {"launch.nproc=4"},
       {"./sluice train out.yaml"}},
      {"deepspeed -Hone --exclude w0:3 --bind_cores_to_rank --bind_core_list 0-7 t.py",
       3,
       {"--hostfile mapped", "--exclude mapped", "--bind_cores_to_rank not_needed",
        "--bind_core_list mapped"},
       {"launch.nproc=3"},
       {"taskset -c 0-7 ./sluice train out.yaml"}},
      {"python -m deepspeed.launcher.runner --num_gpus 1 t.py",
       1,
       {"--num_gpus mapped"},
       {"launch.nproc=1"},
       {"./sluice train out.yaml"}},
  });
}

TEST(DeepSpeedLaunch, SeveralHosts) {
  expect({
      {"deepspeed --hostfile h t.py",
       8,
       {"--hostfile mapped"},
       {"launch.hostfile=\"h\""},
       {"./sluice train out.yaml"}},
      {"deepspeed -H h --num_gpus 2 t.py",
       4,
       {"--hostfile mapped", "--num_gpus mapped"},
       {"launch.hostfile=\"hosts\""},
       {"./sluice train out.yaml"}},
      {"deepspeed -H h --num_nodes 1 t.py",
       4,
       {"--hostfile mapped", "--num_nodes mapped"},
       {"launch.nproc=4"},
       {"./sluice train out.yaml"}},
      {"deepspeed -H one --force_multi t.py",
       4,
       {"--hostfile mapped", "--force_multi mapped"},
       {"launch.hostfile=\"one\""},
       {"./sluice train out.yaml"}},
      {"deepspeed -H h -i w0:1,2@w1:1,2 --master_addr 10.0.0.1 --master_port 7000 t.py",
       4,
       {"--hostfile mapped", "--include mapped", "--master_addr mapped", "--master_port mapped"},
       {"launch.hostfile=\"hosts\""},
       {"MASTER_ADDR=10.0.0.1 MASTER_PORT=7000 CUDA_VISIBLE_DEVICES=1,2 "
        "SLUICE_EXPORT=CUDA_VISIBLE_DEVICES ./sluice train out.yaml"}},
      {"deepspeed -H h --ssh_port 2222 t.py",
       8,
       {"--hostfile mapped", "--ssh_port mapped"},
       {"launch.hostfile=\"h\""},
       {"SLUICE_SSH='ssh -T -o BatchMode=yes -o ConnectTimeout=30 -o ServerAliveInterval=5 -p "
        "2222' ./sluice train out.yaml"}},
      {"deepspeed -H h --launcher SLURM --launcher_args '-p long' t.py",
       8,
       {"--hostfile not_needed", "--launcher mapped", "--launcher_args mapped"},
       {"launch.nproc=4"},
       {"srun --nodes=2 --ntasks=8 -p long ./sluice train out.yaml"}},
      {"deepspeed -H uneven --no_ssh --node_rank 1 --master_addr w0 t.py",
       6,
       {"--hostfile mapped", "--no_ssh mapped", "--node_rank mapped", "--master_addr mapped"},
       {"launch.nproc=2"},
       {"torchrun --no-python --nnodes=2 --nproc-per-node=2 --node-rank=1 --master-addr=w0 "
        "--master-port=29500 ./sluice train out.yaml"}},
      {"deepspeed -H h --launcher openmpi t.py",
       8,
       {"--hostfile mapped", "--launcher refused_unless_default!"},
       {"launch.hostfile=\"h\""},
       {"./sluice train out.yaml"}},
      // The file is on the cluster only.
      {"deepspeed -H away --num_nodes 3 --num_gpus 4 t.py",
       12,
       {"--hostfile mapped", "--num_nodes mapped", "--num_gpus mapped"},
       {"launch.hostfile=\"away\"", "launch.nproc=4"},
       {"./sluice train out.yaml"}},
  });
}

TEST(DeepSpeedLaunch, ArgumentsWithoutEffectHere) {
  expect({
      {"deepspeed --module --no_python --no_local_rank --no_ssh_check --save_pid -q "
       "--enable_each_rank_log d --venv_script v --log_level info --min_elastic_nodes 1 "
       "--autotuning tune t.py",
       0,
       {"--module not_needed", "--no_python not_needed", "--no_local_rank not_needed",
        "--no_ssh_check not_needed", "--save_pid not_needed", "--quiet not_needed",
        "--enable_each_rank_log not_needed", "--venv_script not_needed", "--log_level not_needed",
        "--min_elastic_nodes ignored_upstream", "--autotuning changed"},
       {},
       {"./sluice plan out.yaml --suggest", "./sluice train out.yaml"}},
      {"deepspeed --elastic_training --master_addr a --launcher mpich t.py",
       0,
       {"--elastic_training refused_unless_default!", "--master_addr not_needed",
        "--launcher ignored_upstream"},
       {},
       {"./sluice train out.yaml"}},
  });
}

TEST(DeepSpeedLaunch, PassesTheEnvironmentFileToOtherHosts) {
  Files files = kFiles;
  files[".deepspeed_env"] = "NCCL_DEBUG=INFO\nUCX_TLS=rc x\n\n";
  files["~/.deepspeed_env"] = "A=1";
  expect({{"PYTHONPATH=. NCCL_P2P_DISABLE=1 deepspeed -H h t.py",
           8,
           {"PYTHONPATH not_needed", "NCCL_P2P_DISABLE mapped", "--hostfile mapped"},
           {"launch.hostfile=\"h\""},
           {"NCCL_P2P_DISABLE=1 NCCL_DEBUG=INFO UCX_TLS='rc x' A=1 SLUICE_EXPORT=UCX_TLS,A "
            "./sluice train out.yaml"}}},
         files);
}

TEST(DeepSpeedLaunch, WritesTheHostsThatAreLeft) {
  Migration migration;
  MigrationDraft draft(migration);
  const LaunchLine result = map_launch_line("deepspeed -H h --include w0@w1:0,2 t.py",
                                            {.read = reader_of(kFiles)}, draft);
  EXPECT_EQ(result.hostfile_text, "w0 slots=4\nw1 slots=2\n");
  EXPECT_EQ(migration.notes,
            (Words{"Write the file hosts with the lines 'w0 slots=4', 'w1 slots=2'.",
                   "Set CUDA_VISIBLE_DEVICES=0,2 in the shell's start-up file of w1: the same "
                   "variables go to all hosts."}));
}

TEST(DeepSpeedLaunch, AsksForTheGpusThatStay) {
  Migration migration;
  MigrationDraft draft(migration);
  const LaunchLine result =
      map_launch_line("deepspeed --exclude localhost:0 t.py", {.read = reader_of({})}, draft);
  EXPECT_EQ(texts(result.errors), Words{});
  ASSERT_EQ(migration.missing.size(), 1U);
  EXPECT_EQ(migration.missing[0].path, "--exclude");
  EXPECT_EQ(migration.missing[0].give,
            "--launch with --include and the GPUs that stay, such as --include localhost:0,1");
}

TEST(TorchrunLaunch, KeepsTorchrunOnSeveralHosts) {
  expect({
      {"torchrun t.py", 1, {}, {"launch.nproc=1"}, {"./sluice train out.yaml"}},
      {"torchrun --standalone --nproc-per-node=4 --max_restarts 2 t.py",
       4,
       {"--standalone not_needed", "--nproc_per_node mapped", "--max_restarts changed"},
       {"launch.nproc=4", "launch.max_restarts=2"},
       {"./sluice train out.yaml"}},
      {"python3.11 -u -m torch.distributed.run --nproc_per_node gpu t.py",
       0,
       {"--nproc_per_node mapped"},
       {},
       {"./sluice train out.yaml"}},
      {"torchrun --nnodes 2 --nproc_per_node 4 --node_rank 1 --rdzv_endpoint a:1 "
       "--rdzv-backend c10d --max-restarts 1 t.py",
       8,
       {"--nnodes mapped", "--nproc_per_node mapped", "--node_rank mapped",
        "--rdzv_endpoint mapped", "--rdzv_backend mapped", "--max_restarts mapped"},
       {"launch.nproc=4"},
       {"torchrun --no-python --nnodes=2 --nproc-per-node=4 --rdzv-backend=c10d "
        "--rdzv-endpoint=a:1 --node-rank=1 --max-restarts=1 ./sluice train out.yaml --resume "
        "auto"}},
      {"torchrun --nnodes 1:4 --nproc_per_node 2 t.py",
       8,
       {"--nnodes refused_unless_default!", "--nproc_per_node mapped"},
       {"launch.nproc=2"},
       {"torchrun --no-python --nnodes=1:4 --nproc-per-node=2 ./sluice train out.yaml"}},
  });
}

TEST(TorchrunLaunch, ANoteSaysHowToStartTheHosts) {
  Migration migration;
  MigrationDraft draft(migration);
  (void)map_launch_line("torchrun --nnodes 2 --nproc_per_node 4 t.py", {}, draft);
  EXPECT_EQ(migration.notes,
            Words{"the job has 2 hosts, and launch.nproc counts the ranks of one: start the hosts "
                  "with the command of the report, or name each with its ranks in a "
                  "file (lines of name slots=4) with --set launch.hostfile=FILE; `sluice plan` "
                  "needs --world 8"});
}

TEST(PythonLaunch, StartsOneRank) {
  expect(
      {{"python -u -W ignore t.py --lr 1", 1, {}, {"launch.nproc=1"}, {"./sluice train out.yaml"}},
       {"env HF_HOME=/x nohup python3 -m pkg.train",
        1,
        {"HF_HOME not_needed"},
        {"launch.nproc=1"},
        {"./sluice train out.yaml"}}});
}

struct Script {
  std::string line, script, config;
  Words arguments;
};

TEST(LaunchLine, FindsTheScriptAndItsConfiguration) {
  const std::vector<Script> cases{
      {"deepspeed t.py --deepspeed ds.json --bf16",
       "t.py",
       "ds.json",
       {"--deepspeed", "ds.json", "--bf16"}},
      {"deepspeed t.py --deepspeed --deepspeed_config ds.json",
       "t.py",
       "ds.json",
       {"--deepspeed", "--deepspeed_config", "ds.json"}},
      {"torchrun t.py --deepspeed=a.json", "t.py", "a.json", {"--deepspeed=a.json"}},
      {"deepspeed t.py --num_gpus 8", "t.py", "", {"--num_gpus", "8"}},
      {"python t.py", "t.py", "", {}},
  };
  for (const Script& script : cases) {
    SCOPED_TRACE(script.line);
    Migration migration;
    MigrationDraft draft(migration);
    const LaunchLine result = map_launch_line(script.line, {.read = reader_of({})}, draft);
    EXPECT_EQ(result.script, script.script);
    EXPECT_EQ(result.deepspeed_config, script.config);
    EXPECT_EQ(result.script_arguments, script.arguments);
  }
}

TEST(LaunchLine, PlacesAreNumbersOfArguments) {
  Migration migration;
  MigrationDraft draft(migration);
  (void)map_launch_line("deepspeed --hostfile one --num_gpus 2 t.py", {.read = reader_of(kFiles)},
                        draft);
  ASSERT_EQ(migration.keys.size(), 2U);
  EXPECT_EQ(migration.keys[0].value, "\"one\"");
  EXPECT_EQ(migration.keys[0].place.column, 1);
  EXPECT_EQ(migration.keys[1].value, "2");
  EXPECT_EQ(migration.keys[1].place.line, 0);
  EXPECT_EQ(migration.keys[1].place.column, 3);
}

}  // namespace
}  // namespace sluice::migrate
