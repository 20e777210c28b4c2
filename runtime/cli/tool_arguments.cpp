// The options of bench, doctor, report, checkpoint, explain and schema.
#include <cstdint>

#include "runtime/cli/argument_checks.hpp"
#include "runtime/cli/command_line.hpp"

namespace sluice {
namespace {

void add_bench_step(CLI::App& group, Arguments& args) {
  CLI::App* step = group.add_subcommand("step", "where a training step's time goes, lane by lane");
  step->add_option("config", args.bench_step.config, "the YAML file")->required();
  step->add_option("--set", args.bench_step.overrides, "section.key=value, over the file")
      ->allow_extra_args(false);
  step->add_option("--nproc", args.bench_step.nproc, "ranks on this host, over launch.nproc")
      ->check(whole_number(1));
  step->add_option("--steps", args.bench_step.steps, "steps that count")
      ->check(whole_number(1))
      ->capture_default_str();
  step->add_option("--warmup", args.bench_step.warmup, "steps before them")
      ->check(whole_number(0))
      ->capture_default_str();
}

void add_bench_nvme(CLI::App& group, Arguments& args) {
  CLI::App* nvme = group.add_subcommand("nvme", "the NVMe tier's store by block and depth");
  nvme->add_option("paths", args.bench_nvme.paths, "folders, one for each drive")->required();
  nvme->add_option("--bytes", args.bench_nvme.bytes, "moved by each measurement: 1GiB");
  nvme->add_option("--blocks", args.bench_nvme.blocks, "largest transfers: 256KiB,1MiB")
      ->delimiter(',');
  nvme->add_option("--depths", args.bench_nvme.depths, "transfers in flight: 4,16,64")
      ->delimiter(',')
      ->check(CLI::Range(1, 4096));
  nvme->add_flag("--no-checksums", args.bench_nvme.no_checksums, "move bytes unhashed");
}

void add_checkpoint(CLI::App& app, Arguments& args) {
  CheckpointCommand& command = args.checkpoint;
  CLI::App* group = app.add_subcommand(
      "checkpoint", "look at checkpoints; Hugging Face in and out, DeepSpeed and Megatron in");
  group->require_subcommand(1);
  CLI::App* list = group->add_subcommand("ls", "the checkpoints of a folder");
  CLI::App* verify = group->add_subcommand("verify", "read every byte, compare every checksum");
  CLI::App* again = group->add_subcommand(
      "convert", "write a checkpoint again: in so many files, moments in bf16, weights alone");
  CLI::App* out = group->add_subcommand("export", "write a checkpoint as a Hugging Face folder");
  CLI::App* in = group->add_subcommand(
      "import", "make a checkpoint of a Hugging Face folder, or one of DeepSpeed's or Megatron's");
  list->add_option("folder", command.path, "a run's folder, or one of checkpoints")->required();
  verify->add_option("path", command.path, "a run's folder, a checkpoint, or a folder of them")
      ->required();
  for (CLI::App* sub : {again, out}) {
    sub->add_option("checkpoint", command.path,
                    "a run's folder, a checkpoint, or a folder of them: the newest")
        ->required();
  }
  in->add_option("folder", command.path,
                 "a Hugging Face folder, or a checkpoint of DeepSpeed or Megatron")
      ->required();
  for (CLI::App* sub : {list, verify}) sub->add_flag("--json", command.json, "for machines");
  for (CLI::App* sub : {again, out, in}) {
    sub->add_option("-o,--output", command.out, "the folder to write")->required();
  }
  out->add_option("--dtype", command.dtype, "of the weights")
      ->check(CLI::IsMember({"fp32", "bf16", "fp16"}))
      ->capture_default_str();
  out->add_option("--shard-bytes", command.shard_bytes, "of tensors in one file: 5GB")
      ->transform(size_in_bytes(true, "5GB"))
      ->default_str("5GB");
  out->add_option("--tokenizer", command.tokenizer, "a folder with the tokenizer's files");
  in->add_option("--format", command.format, "of the folder")
      ->check(CLI::IsMember({"auto", "hf", "deepspeed", "megatron"}))
      ->capture_default_str();
  in->add_option("--config", command.config, "a run's YAML file; none: the folder's model");
  for (CLI::App* sub : {again, in}) {
    sub->add_flag("--weights-only", command.weights_only, "leave the optimizer's moments out");
  }
  again->add_option("--files", command.files, "of equal shares")
      ->check(whole_number(1, 1'000'000))
      ->capture_default_str();
  again->add_option("--moments", command.moments, "their type; none: as they are")
      ->check(CLI::IsMember({"fp32", "bf16"}));
  in->add_option("--set", command.overrides, "section.key=value, e.g. model.seq=4096")
      ->allow_extra_args(false);
}

void add_explain(CLI::App& app, Arguments& args) {
  CLI::App* explain = app.add_subcommand("explain", "what a configuration's keys mean");
  auto* name = explain->add_option("key", args.explain.name,
                                   "a section or a key, as train.clip; none: all sections");
  explain->add_flag("--markdown", args.explain.markdown, "all keys, as docs/configuration.md")
      ->excludes(name);
}

void add_doctor(CLI::App& app, Arguments& args) {
  CLI::App* doctor = app.add_subcommand("doctor", "what this machine can do, and what is off");
  doctor->add_flag("--json", args.doctor.json, "for machines");
  doctor->add_flag("--quick", args.doctor.quick, "fewer and smaller measurements");
  doctor->add_option("--nvme-path", args.doctor.nvme_path,
                     "a folder on the disk to measure; none: that of temporary files");
  doctor->add_option("--out", args.doctor.out,
                     "the rates file to write; none: where train and plan look for it");
}

void add_report(CLI::App& app, Arguments& args) {
  ReportCommand& to = args.report;
  CLI::App* report = app.add_subcommand("report", "a page of charts of one run, or of several");
  report->add_option("runs", to.runs, "folders of runs (output.dir)")->required();
  auto* output = report->add_option(
      "-o,--output", to.output,
      "the file, - for standard output; default: report.html in the first run's folder");
  auto* watch =
      report->add_flag("--watch", to.watch, "serve the page on 127.0.0.1 while the runs go on");
  watch->excludes(output);
  report->add_option("--port", to.port, "of --watch; default: a free one")
      ->check(whole_number(0, 65535))
      ->needs(watch);
}

void add_bench(CLI::App& app, Arguments& args) {
  CLI::App* group = app.add_subcommand("bench", "measure this machine: step, comm, adam, nvme");
  group->require_subcommand(1);
  add_bench_step(*group, args);
  add_bench_nvme(*group, args);

  CLI::App* comm = group->add_subcommand("comm", "reduce-scatter and all-gather by size");
  comm->add_option("--ranks", args.bench_comm.ranks, "ranks on this host")
      ->check(CLI::Range(2, 64))
      ->capture_default_str();
  comm->add_option("--bytes", args.bench_comm.bytes, "sizes of the buffer: 1MiB,64MiB")
      ->delimiter(',');
  comm->add_option("--transports", args.bench_comm.transports, "of gloo,host,mapped,local")
      ->delimiter(',');

  CLI::App* adam = group->add_subcommand("adam", "AdamW on the host against its memory");
  adam->add_option("--elems", args.bench_adam.elems, "parameters: 32M");
  adam->add_option("--threads", args.bench_adam.threads, "default: the cores there are")
      ->check(CLI::Range(1, 4096));
  adam->add_option("--dtype", args.bench_adam.dtype, "of gradients and weights")
      ->check(CLI::IsMember({"fp32", "bf16", "fp16"}))
      ->capture_default_str();

  for (CLI::App* sub : {comm, adam}) {
    sub->add_option("--rounds", args.bench.rounds, "repetitions")->check(CLI::Range(1, 100000));
  }
  for (CLI::App* sub : {group->get_subcommand("step"), group->get_subcommand("nvme"), comm, adam}) {
    sub->add_flag("--json", args.bench.json, "for machines");
  }
}

}  // namespace

void add_tool_commands(CLI::App& app, Arguments& args) {
  add_bench(app, args);
  add_doctor(app, args);
  add_report(app, args);
  add_checkpoint(app, args);
  add_explain(app, args);
  app.add_subcommand("schema", "print the configuration's JSON Schema, for editors");
}

}  // namespace sluice
