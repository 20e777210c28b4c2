// Wrong launch lines, accelerate files and Trainer arguments, each with its whole message.
#include <gtest/gtest.h>

#include "configs/migrate/launcher/accelerate_config.hpp"
#include "configs/migrate/launcher/training_arguments.hpp"
#include "tests/configs/migrate/launcher/launch_cases.hpp"

namespace sluice::migrate {
namespace {

using Words = std::vector<std::string>;

struct Wrong {
  std::string input;
  Words errors;
};

const Files kWrongFiles{{"h", "w0 slots=4\nw1 slots=4\n"},
                        {"twice", "w0 slots=4\nw0 slots=4\n"},
                        {"bad", "w0\n"},
                        {"many", "w0 slots=9999\n"},
                        {"empty", "# nothing\n"},
                        {"run.sh", "deepspeed t.py\n"},
                        {"./run.sh", "deepspeed t.py\n"},
                        {"acc.yaml", "num_processes: 2\n"},
                        {"env", ""}};

TEST(RefusedLaunch, ShellLines) {
  const std::vector<Wrong> cases{
      {"", {"--launch: the line has no command; give the launcher's"}},
      {"A=1", {"--launch: the line has no command; give the launcher's"}},
      {"deepspeed 'a", {"--launch: line 1, character 11: the quote ' has no end; close the quote"}},
      {"deepspeed \"a",
       {"--launch: line 1, character 11: the quote \" has no end; close the quote"}},
      {"deepspeed a\\",
       {"--launch: line 1, character 12: a backslash ends the text; remove the backslash or add "
        "what follows"}},
      {"deepspeed t.py | tee log",
       {"--launch: line 1, character 16: the pipe | is no argument; leave out the pipe and what "
        "follows"}},
      {"deepspeed t.py 2>&1",
       {"--launch: line 1, character 17: the redirection > is no argument; leave it out"}},
      {"cd x && deepspeed t.py",
       {"--launch: line 1, character 6: '&&' belongs to the shell; give one command without '&&', "
        "or quote the word"}},
      {"deepspeed t.py &",
       {"--launch: line 1, character 16: '&' belongs to the shell; give one command without '&', "
        "or quote the word"}},
      {"deepspeed $(which t.py)",
       {"--launch: line 1, character 11: a shell would run a command here; write the command's "
        "output instead"}},
      {"deepspeed --num_gpus $A $B",
       {"--launch: line 1, character 22: the variable $A has no value here; write the value "
        "instead of the variable",
        "--launch: line 1, character 25: the variable $B has no value here; write the value "
        "instead of the variable"}},
      {"deepspeed t.py\npython x.py",
       {"--launch: line 2, character 1: a second command starts here; give one command, with \\ at "
        "the end of each line that goes on"}},
  };
  for (const Wrong& wrong : cases) {
    SCOPED_TRACE(wrong.input);
    Migration migration;
    MigrationDraft draft(migration);
    const LaunchLine result = map_launch_line(wrong.input, {.read = reader_of(kWrongFiles)}, draft);
    EXPECT_EQ(texts(result.errors), wrong.errors);
  }
}

TEST(RefusedLaunch, Launchers) {
  const std::vector<Wrong> cases{
      {"run.sh",
       {"--launch: 'run.sh' is a file, and no file of commands is run; give the line in it that "
        "starts the training, in quotes"}},
      {"bash ./run.sh 8",
       {"--launch: './run.sh' is a file, and no file of commands is run; give the line in it that "
        "starts the training, in quotes"}},
      {"bash other.sh",
       {"--launch: 'bash' is no launcher that Sluice knows; give deepspeed, accelerate launch, "
        "torchrun or python"}},
      {"srun python t.py",
       {"--launch: srun starts the ranks; give the command after it, and the ranks as --world"}},
      {"python -c 'import x'", {"--launch: python -c is no script; give the file of the script"}},
      {"python", {"--launch: python is given no script; add the script"}},
      {"nohup", {"--launch: the line has no program; give one"}},
      {"accelerate config",
       {"--launch: accelerate starts a training as 'accelerate launch'; give that"}},
      {"deepspeed --num_gpus 2",
       {"--launch: DeepSpeed's launcher is given no script; add the script and its arguments"}},
      {"deepspeed --num_gpu_s 2 t.py",
       {"--launch: argument 1: --num_gpu_s: DeepSpeed's launcher has no such argument; nearest is "
        "--num_gpus"}},
      {"deepspeed --world 2 t.py",
       {"--launch: argument 1: --world: DeepSpeed's launcher has no such argument; take it away"}},
      {"deepspeed --num_gpus two t.py",
       {"--launch: argument 1: --num_gpus: 'two' is no whole number; give one"}},
      {"deepspeed --num_gpus 2.5 t.py",
       {"--launch: argument 1: --num_gpus: '2.5' is no whole number; give one"}},
      {"deepspeed --num_gpus 0 t.py",
       {"--launch: argument 1: --num_gpus: 0 is out of range; give 1 or more"}},
      {"deepspeed --num_gpus --module t.py",
       {"--launch: argument 1: --num_gpus: the value is missing; give one after it"}},
      {"deepspeed --module=yes t.py",
       {"--launch: argument 1: --module: takes no value; give it alone"}},
      {"deepspeed --num 1 t.py",
       {"--launch: argument 1: --num: the abbreviation fits --num_nodes and --num_gpus; write the "
        "whole name"}},
      {"deepspeed --autotuning fast t.py",
       {"--launch: argument 1: --autotuning: 'fast' is not one of: tune run"}},
      {"deepspeed --num_nodes 2 t.py",
       {"--launch: argument 1: --num_nodes: 2 hosts need a hostfile; add --hostfile FILE"}},
      {"deepspeed --master_port 70000 t.py",
       {"--launch: argument 1: --master_port: 70000 is no port; give 1 to 65535"}},
      {"deepspeed -H h -i w0 -e w1 t.py",
       {"--launch: argument 5: --exclude: DeepSpeed refuses --include and --exclude together; keep "
        "one"}},
      {"deepspeed -H h -i w0 --num_gpus 2 t.py",
       {"--launch: argument 3: --include: DeepSpeed refuses it beside --num_nodes and --num_gpus; "
        "keep one kind"}},
      {"deepspeed -H h -i w7 t.py",
       {"--launch: argument 3: --include: host 'w7' is not in the hostfile; add its line, or take "
        "it away"}},
      {"deepspeed -H h -i w0:9 t.py",
       {"--launch: argument 3: --include: host w0 has no slot 9; its slots are 0,1,2,3"}},
      {"deepspeed -H h -i w0:a t.py",
       {"--launch: argument 3: --include: 'a' is no slot number; write numbers such as w0:0,1"}},
      {"deepspeed -H h -i w0:1:2 t.py",
       {"--launch: argument 3: --include: 'w0:1:2' is no host; write host, or host:0,1"}},
      {"deepspeed -H h -e w0@w1 t.py",
       {"--launch: argument 3: --exclude: no host is left; exclude fewer"}},
      {"deepspeed -H twice t.py",
       {"--launch: argument 1: --hostfile: twice:2: host w0 stands here a second time; keep one of "
        "the lines"}},
      {"deepspeed -H bad t.py",
       {"--launch: argument 1: --hostfile: bad:1: 'w0' is no host; write 'name slots=N'"}},
      {"deepspeed -H many t.py",
       {"--launch: argument 1: --hostfile: many:1: host w0 has 9999 slots; give 1 to 1024"}},
      {"deepspeed -H empty t.py",
       {"--launch: argument 1: --hostfile: empty: the file has no host; write lines 'name "
        "slots=N'"}},
      {"deepspeed -H h --no_ssh t.py",
       {"--launch: argument 3: --no_ssh: needs --node_rank from 0 to 1"}},
      {"deepspeed --elastic_training t.py",
       {"--launch: argument 1: --elastic_training: DeepSpeed needs --master_addr with it; take "
        "both "
        "away"}},
      {"torchrun --nnodes two t.py",
       {"--launch: argument 1: --nnodes: 'two' is no number of hosts; give N, or MIN:MAX"}},
      {"torchrun --nproc-per-node=0 t.py",
       {"--launch: argument 1: --nproc_per_node: '0' is no number of ranks; give N, gpu, cpu or "
        "auto"}},
      {"accelerate launch --config_file away.yaml t.py",
       {"--launch: argument 1: --config_file: cannot read 'away.yaml'; check the path"}},
      {"accelerate launch --config_file acc.yaml t.py",
       {"acc.yaml: distributed_type: the key is missing; give DEEPSPEED, FSDP, MULTI_GPU or NO"}},
      {"accelerate launch --use_fsdp --use_deepspeed t.py",
       {"--launch: argument 1: --use_fsdp: accelerate refuses it beside --use_deepspeed; keep "
        "one"}},
      {"accelerate launch --mixed_precision int8 t.py",
       {"--launch: argument 1: --mixed_precision: 'int8' is not one of: no fp16 bf16 fp8"}},
  };
  for (const Wrong& wrong : cases) {
    SCOPED_TRACE(wrong.input);
    Migration migration;
    MigrationDraft draft(migration);
    const LaunchLine result = map_launch_line(wrong.input, {.read = reader_of(kWrongFiles)}, draft);
    EXPECT_EQ(texts(result.errors), wrong.errors);
  }
}

TEST(RefusedAccelerate, Files) {
  const std::vector<Wrong> cases{
      {"", {"c.yaml: the file has no keys; accelerate config writes such a file"}},
      {"- a\n", {"c.yaml: the file has no keys; accelerate config writes such a file"}},
      {"num_processes: 8\n",
       {"c.yaml: distributed_type: the key is missing; give DEEPSPEED, FSDP, MULTI_GPU or NO"}},
      {"distributed_type: DEEPSPED\n",
       {"c.yaml:1:1: distributed_type: accelerate has no type 'DEEPSPED'; nearest is "
        "'DEEPSPEED'"}},
      {"distributed_type: FSDP\nnum_procs: 8\n",
       {"c.yaml:2:1: num_procs: accelerate has no such key; nearest is 'num_processes'"}},
      {"distributed_type: FSDP\nnum_process: 8\nmixed_precision: bf61\n",
       {"c.yaml:2:1: num_process: accelerate has no such key; nearest is 'num_processes'",
        "c.yaml:3:1: mixed_precision: 'bf61' is no precision; give no, fp16, bf16 or fp8"}},
      {"distributed_type: FSDP\nfsdp_config:\n  a: 1\n  a: 2\n",
       {"c.yaml:4:3: key 'a' stands here a second time; keep one of them"}},
      {"distributed_type: [FSDP\n",
       {"c.yaml:2:1: not YAML: end of sequence flow not found (a [ without its ])"}},
      {"distributed_type: FSDP\nfrobnicate: 1\n",
       {"c.yaml:2:1: frobnicate: accelerate has no such key; remove the key"}},
  };
  for (const Wrong& wrong : cases) {
    SCOPED_TRACE(wrong.input);
    EXPECT_EQ(texts(read_accelerate_file(wrong.input, "c.yaml").errors), wrong.errors);
  }
}

TEST(RefusedAccelerate, DeepSpeedSections) {
  const std::vector<Wrong> cases{
      {"  zero_stage: 4\n",
       {"c.yaml:3:3: deepspeed_config.zero_stage: '4' is no stage; give 0, 1, 2 or 3"}},
      {"  offload_param_device: disk\n",
       {"c.yaml:3:3: deepspeed_config.offload_param_device: 'disk' is no device; give none, cpu or "
        "nvme"}},
      {"  gradient_accumulation_steps: 0\n",
       {"c.yaml:3:3: deepspeed_config.gradient_accumulation_steps: '0' is no count; give 1 or "
        "more, "
        "or auto"}},
      {"  gradient_clipping: much\n",
       {"c.yaml:3:3: deepspeed_config.gradient_clipping: 'much' is no number; give 0 or more, or "
        "auto"}},
      {"  zero3_save_16bit_model: 2\n",
       {"c.yaml:3:3: deepspeed_config.zero3_save_16bit_model: '2' is neither true nor false; give "
        "one of them"}},
      {"  deepspeed_config_file: ds.json\n  zero_stage: 2\nmixed_precision: bf16\n",
       {"c.yaml:4:3: deepspeed_config.zero_stage: accelerate refuses it beside "
        "deepspeed_config_file; write it into that file",
        "c.yaml:5:1: mixed_precision: accelerate refuses it beside deepspeed_config_file; write it "
        "into that file"}},
      {"  deepspeed_hostfile: h\n  deepspeed_multinode_launcher: openmpi\nnum_machines: 2\n"
       "num_processes: 8\n",
       {"c.yaml: deepspeed_config.deepspeed_multinode_launcher: Sluice starts ranks by ssh or "
        "srun, "
        "not by openmpi; give --launcher pdsh or slurm"}},
  };
  for (const Wrong& wrong : cases) {
    SCOPED_TRACE(wrong.input);
    const AccelerateFile file = read_accelerate_file(
        "distributed_type: DEEPSPEED\ndeepspeed_config:\n" + wrong.input, "c.yaml");
    ASSERT_EQ(texts(file.errors), Words{});
    Migration migration;
    MigrationDraft draft(migration);
    const auto made = map_accelerate_deepspeed(file, {.read = reader_of(kWrongFiles)}, draft);
    EXPECT_EQ(texts(made.errors), wrong.errors);
  }
}

TEST(RefusedAccelerate, RanksThatDoNotDivide) {
  for (const auto& [ranks, message] : std::map<std::string, std::string>{
           {"3",
            "c.yaml:3:1: num_processes: 3 ranks do not divide into 2 machines; give a "
            "multiple"},
           {"99999999999999999999",
            "c.yaml:3:1: num_processes: more than 1048576 ranks; give fewer"},
           {"0", "c.yaml:3:1: num_processes: a count of ranks is at least 1; give one, or -1"}}) {
    const AccelerateFile file = read_accelerate_file(
        "distributed_type: FSDP\nnum_machines: 2\nnum_processes: " + ranks + "\n", "c.yaml");
    Migration migration;
    migration.file = "c.yaml";
    MigrationDraft draft(migration);
    (void)map_accelerate_job(file, draft);
    EXPECT_EQ(texts(migration.errors), Words{message});
  }
}

TEST(RefusedTrainer, Arguments) {
  const std::vector<Wrong> cases{
      {"--learning_rate fast",
       {"--trainer: argument 1: --learning_rate: 'fast' is not a number; give one"}},
      {"--bf16 --max_steps 1.5",
       {"--trainer: argument 2: --max_steps: '1.5' is not a whole number; give one"}},
      {"--seed", {"--trainer: argument 1: --seed: the value is missing; give one after it"}},
      {"--bf16=maybe", {"--trainer: argument 1: --bf16: 'maybe' is not true or false; give one"}},
      {"--eval_strategy no --evaluation-strategy steps",
       {"--trainer: argument 3: --evaluation-strategy: --eval_strategy is the same argument; keep "
        "one of them"}},
      {"--seed 1 > log",
       {"--trainer: line 1, character 10: the redirection > is no argument; leave it out"}},
      {"{\"learning_rate\": \"2e-5\"}",
       {"a.json:1:2: learning_rate: \"2e-5\" is not a number; give one"}},
      {"{\"bf16\": 1}", {"a.json:1:2: bf16: 1 is not true or false; give one"}},
      {"{\"seed\": 1,\n \"seed\": 2}",
       {"a.json:2:2: the key 'seed' is given twice, first in line 1; remove one of the two"}},
  };
  for (const Wrong& wrong : cases) {
    SCOPED_TRACE(wrong.input);
    EXPECT_EQ(texts(read_training_arguments(wrong.input, "a.json").errors), wrong.errors);
  }
}

}  // namespace
}  // namespace sluice::migrate
