// accelerate's file: the DeepSpeed configuration that accelerate builds, ranks and commands.
#include "configs/migrate/launcher/accelerate_config.hpp"

#include <gtest/gtest.h>

#include "tests/configs/migrate/launcher/launch_cases.hpp"

namespace sluice::migrate {
namespace {

using Words = std::vector<std::string>;

struct Made {
  AccelerateDeepSpeed result;
  Migration migration;
};

Made make(const std::string& text, const Files& files = {}) {
  Made made;
  made.migration.file = "c.yaml";
  const AccelerateFile file = read_accelerate_file(text, "c.yaml");
  EXPECT_EQ(texts(file.errors), Words{});
  MigrationDraft draft(made.migration);
  made.result = map_accelerate_deepspeed(file, {.read = reader_of(files)}, draft);
  return made;
}

TEST(Accelerate, ReadsWordsAsYamlDoes) {
  const AccelerateFile file = read_accelerate_file(
      "distributed_type: NO\nmixed_precision: 'no'\ndebug: off\nnum_processes: 8\n"
      "gpu_ids: '0,1'\nmain_process_ip:\ndynamo_config: {a: 1e-5, b: .5, c: +3, d: 007, e: 5.}\n",
      "c.yaml");
  EXPECT_EQ(texts(file.errors), Words{});
  EXPECT_EQ(file.distributed_type, "NO");
  EXPECT_EQ(file.mixed_precision, "no");
  EXPECT_EQ(to_json(file.root),
            "{\"distributed_type\": false, \"mixed_precision\": false, \"debug\": false, "
            "\"num_processes\": 8, \"gpu_ids\": \"0,1\", \"main_process_ip\": null, "
            "\"dynamo_config\": {\"a\": 1e-5, \"b\": 0.5, \"c\": 3, \"d\": 7, \"e\": 5}}");
}

// The expectation is what DeepSpeedPlugin of accelerate builds from the same file.
TEST(Accelerate, BuildsTheDeepSpeedConfiguration) {
  const Made made = make(
      "distributed_type: DEEPSPEED\nmixed_precision: bf16\nnum_processes: 8\nnum_machines: 1\n"
      "deepspeed_config:\n  zero_stage: 3\n  gradient_accumulation_steps: 4\n"
      "  gradient_clipping: 0.5\n  offload_optimizer_device: nvme\n"
      "  offload_optimizer_nvme_path: /nvme\n  offload_param_device: cpu\n"
      "  zero3_init_flag: true\n  zero3_save_16bit_model: true\n");
  EXPECT_EQ(texts(made.result.errors), Words{});
  EXPECT_EQ(to_json(made.result.config),
            "{\"train_batch_size\": \"auto\", \"train_micro_batch_size_per_gpu\": \"auto\", "
            "\"gradient_accumulation_steps\": 4, \"zero_optimization\": {\"stage\": 3, "
            "\"offload_optimizer\": {\"device\": \"nvme\", \"nvme_path\": \"/nvme\"}, "
            "\"offload_param\": {\"device\": \"cpu\", \"nvme_path\": null}, "
            "\"stage3_gather_16bit_weights_on_model_save\": true}, \"gradient_clipping\": 0.5, "
            "\"fp16\": {\"enabled\": false}, \"bf16\": {\"enabled\": true}}");
  EXPECT_EQ(made.result.config.find("gradient_clipping")->line, 8);
  EXPECT_EQ(made.result.world, 8);
  EXPECT_EQ(made.result.commands, Words{"./sluice train out.yaml"});
  EXPECT_EQ(settings(made.migration), Words{"launch.nproc=8"});
  EXPECT_EQ(key_lines(made.migration),
            (Words{"distributed_type mapped", "num_processes mapped", "num_machines mapped",
                   "deepspeed_config.zero_stage mapped",
                   "deepspeed_config.gradient_accumulation_steps mapped",
                   "deepspeed_config.gradient_clipping mapped",
                   "deepspeed_config.offload_optimizer_device mapped",
                   "deepspeed_config.offload_optimizer_nvme_path mapped",
                   "deepspeed_config.offload_param_device mapped",
                   "deepspeed_config.zero3_init_flag not_needed",
                   "deepspeed_config.zero3_save_16bit_model mapped", "mixed_precision mapped"}));
}

TEST(Accelerate, DefaultsAreThoseOfAccelerate) {
  const Made made = make("distributed_type: DEEPSPEED\nmixed_precision: fp16\n");
  EXPECT_EQ(to_json(made.result.config),
            "{\"train_batch_size\": \"auto\", \"train_micro_batch_size_per_gpu\": \"auto\", "
            "\"gradient_accumulation_steps\": \"auto\", \"zero_optimization\": {\"stage\": 2, "
            "\"offload_optimizer\": {\"device\": \"none\", \"nvme_path\": null}, "
            "\"offload_param\": {\"device\": \"none\", \"nvme_path\": null}, "
            "\"stage3_gather_16bit_weights_on_model_save\": false}, "
            "\"gradient_clipping\": \"auto\", \"fp16\": {\"enabled\": true, \"auto_cast\": true}, "
            "\"bf16\": {\"enabled\": false}}");
  EXPECT_EQ(made.result.world, 0);
}

TEST(Accelerate, DropsAClippingOfZero) {
  const Made made =
      make("distributed_type: DEEPSPEED\ndeepspeed_config:\n  gradient_clipping: 0.0\n");
  EXPECT_EQ(made.result.config.find("gradient_clipping"), nullptr);
  EXPECT_EQ(key_lines(made.migration).back(), "deepspeed_config.gradient_clipping changed");
}

TEST(Accelerate, FillsAutosOfAConfigurationFile) {
  const Made made = make(
      "distributed_type: DEEPSPEED\ndeepspeed_config:\n  deepspeed_config_file: ds.json\n"
      "  zero3_init_flag: true\n");
  EXPECT_EQ(texts(made.result.errors), Words{});
  EXPECT_EQ(made.result.config_file, "ds.json");
  EXPECT_EQ(made.result.autos.at("zero_optimization.stage"), "2");
  EXPECT_EQ(made.result.autos.at("bf16.enabled"), "false");
  EXPECT_FALSE(made.result.autos.contains("gradient_clipping"));

  const AccelerateFile file = read_accelerate_file("distributed_type: DEEPSPEED\n", "c.yaml");
  HjsonNode good = read_hjson("{zero_optimization: {}}").root;
  EXPECT_EQ(texts(complete_deepspeed_file(file, good)), Words{});
  EXPECT_EQ(to_json(good), "{\"zero_optimization\": {}, \"gradient_accumulation_steps\": 1}");
  HjsonNode bad = read_hjson("{}").root;
  EXPECT_EQ(texts(complete_deepspeed_file(file, bad)),
            Words{"c.yaml: deepspeed_config.deepspeed_config_file: accelerate refuses a file "
                  "without zero_optimization; add the section"});
}

TEST(Accelerate, StartsSeveralMachines) {
  const std::string file =
      "distributed_type: DEEPSPEED\nnum_machines: 2\nnum_processes: 8\nmachine_rank: 1\n"
      "main_process_ip: 10.0.0.1\nmain_process_port: 7000\ndeepspeed_config:\n";
  const Files files{{"h", "w0 slots=4\nw1 slots=4\n"}};
  const Made pdsh = make(file + "  deepspeed_hostfile: h\n", files);
  EXPECT_EQ(pdsh.result.commands,
            Words{"MASTER_ADDR=10.0.0.1 MASTER_PORT=7000 ./sluice train out.yaml"});
  EXPECT_EQ(settings(pdsh.migration), (Words{"launch.nproc=4", "launch.hostfile=\"h\""}));

  const Made standard = make(file + "  deepspeed_multinode_launcher: standard\n");
  EXPECT_EQ(standard.result.commands,
            Words{"torchrun --no-python --nnodes=2 --nproc-per-node=4 "
                  "--rdzv-endpoint=10.0.0.1:7000 --node-rank=1 ./sluice train out.yaml"});

  // Without names of hosts, num_processes counts and a note says how to name them.
  const Made unnamed = make(file);
  EXPECT_EQ(unnamed.result.world, 8);
  EXPECT_EQ(settings(unnamed.migration), Words{"launch.nproc=4"});
  EXPECT_NE(unnamed.result.start_note.find("the job has 2 machines"), std::string::npos);
  EXPECT_EQ(pdsh.result.start_note + standard.result.start_note, "");

  const Made slurm =
      make(file + "  deepspeed_hostfile: h\n  deepspeed_multinode_launcher: slurm\n", files);
  EXPECT_EQ(slurm.result.commands, Words{"srun --nodes=2 --ntasks=8 ./sluice train out.yaml"});
}

TEST(Accelerate, EveryKeyOfTheJobHasItsClass) {
  const AccelerateFile file = read_accelerate_file(
      "compute_environment: AMAZON_SAGEMAKER\ndistributed_type: MULTI_GPU\ndebug: true\n"
      "downcast_bf16: 'no'\ngpu_ids: 1,2\nuse_cpu: true\nrdzv_backend: static\n"
      "same_network: true\ntpu_env: []\ntpu_use_cluster: true\nmegatron_lm_config: {a: 1}\n"
      "fsdp_config: {a: 1}\nfp8_config: {backend: TE}\nparallelism_config: {tp: 2}\n"
      "num_processes: 2\n",
      "c.yaml");
  ASSERT_EQ(texts(file.errors), Words{});
  Migration migration;
  MigrationDraft draft(migration);
  const AccelerateJob job = map_accelerate_job(file, draft);
  EXPECT_EQ(key_lines(migration),
            (Words{"compute_environment refused_unless_default!", "distributed_type mapped",
                   "debug not_needed", "downcast_bf16 refused_unless_default", "gpu_ids mapped",
                   "use_cpu mapped", "rdzv_backend not_needed", "same_network not_needed",
                   "tpu_env refused_unless_default", "tpu_use_cluster refused_unless_default!",
                   "megatron_lm_config ignored_upstream", "fsdp_config ignored_upstream",
                   "fp8_config ignored_upstream", "parallelism_config refused_unless_default!",
                   "num_processes mapped"}));
  EXPECT_EQ(job.world, 2);
  EXPECT_EQ(job.environment, (Words{"CUDA_VISIBLE_DEVICES=1,2", "CUDA_VISIBLE_DEVICES="}));
  EXPECT_EQ(settings(migration), (Words{"zero.stage=0", "launch.nproc=2"}));
}

// Arguments of accelerate launch take the place of the file's keys.
TEST(Accelerate, LaunchArgumentsComeFirst) {
  const Files files{{"c.yaml",
                     "distributed_type: MULTI_GPU\nnum_processes: 2\n"
                     "mixed_precision: fp16\n"}};
  Migration migration;
  MigrationDraft draft(migration);
  const LaunchLine launch = map_launch_line(
      "accelerate launch --config_file c.yaml --use_deepspeed --zero_stage 1 --num_processes=4 "
      "--mixed_precision bf16 --max_restarts 2 --num_cpu_threads_per_process 3 -m pkg.train --x",
      {.read = reader_of(files)}, draft);
  EXPECT_EQ(texts(launch.errors), Words{});
  EXPECT_EQ(launch.script, "pkg.train");
  ASSERT_TRUE(launch.accelerate.has_value());
  EXPECT_EQ(launch.accelerate->distributed_type, "DEEPSPEED");
  EXPECT_EQ(launch.accelerate->mixed_precision, "bf16");
  EXPECT_EQ(to_json(launch.accelerate->root),
            "{\"distributed_type\": \"DEEPSPEED\", \"num_processes\": 4, \"mixed_precision\": "
            "\"bf16\", \"deepspeed_config\": {\"zero_stage\": 1}}");
  EXPECT_EQ(key_lines(migration),
            (Words{"--config_file mapped", "--use_deepspeed mapped", "--zero_stage mapped",
                   "--num_processes mapped", "--mixed_precision mapped", "--max_restarts mapped",
                   "--num_cpu_threads_per_process mapped", "--module not_needed"}));
  EXPECT_EQ(settings(migration), (Words{"launch.max_restarts=2", "launch.threads=3"}));
}

}  // namespace
}  // namespace sluice::migrate
