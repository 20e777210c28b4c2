#include "runtime/cli/argument_checks.hpp"
#include "runtime/cli/command_line.hpp"

namespace sluice {
namespace {

void add_sources(CLI::App& migrate, migrate::MigrationRequest& to) {
  migrate.add_option("config", to.deepspeed,
                     "DeepSpeed's configuration: a file, or its JSON in base64");
  migrate.add_option("--from-version", to.from_version,
                     "the DeepSpeed that the file was written for; none: the newest known");
  migrate.add_option("--launch", to.launch,
                     "the command that starts the run: \"deepspeed --num_gpus 8 train.py ...\"");
  migrate.add_option("--trainer", to.trainer,
                     "Hugging Face training arguments: a JSON file or a command line");
  migrate.add_option("--accelerate", to.accelerate, "accelerate's configuration file");
  migrate.add_option("--megatron", to.megatron,
                     "Megatron-LM's command line, or a file of its arguments; with the DeepSpeed "
                     "file of Megatron-DeepSpeed as config");
  migrate.add_option("--torchtitan", to.torchtitan, "torchtitan's TOML file");
}

}  // namespace

void add_migrate(CLI::App& app, MigrateCommand& command) {
  migrate::MigrationRequest& to = command.request;
  CLI::App* migrate =
      app.add_subcommand("migrate", "carry a configuration over: DeepSpeed and others");
  add_sources(*migrate, to);
  migrate->add_option("--model", to.model, "a Hugging Face folder: fills model:, shows the memory");
  migrate->add_option("--world", to.world, "ranks of the whole job")->check(CLI::Range(1, 1 << 20));
  migrate->add_option("--hidden-size", to.hidden, "width of the model, for \"auto\" sizes")
      ->check(whole_number(1));
  migrate->add_option("--set", to.set, "section.key=value of the result; repeatable")
      ->allow_extra_args(false);
  migrate
      ->add_option("--allow", to.allowed,
                   "go on without a key that stops the migration; repeatable")
      ->allow_extra_args(false);
  migrate->add_option("-o,--output", command.out,
                      "the YAML file to write; none, or -: standard output");
  migrate->add_flag("--json", command.json, "the report for machines");
  migrate->add_flag("--check", command.check, "the report alone: write no configuration");
  migrate->add_flag("--keys", command.keys, "print what becomes of every key of DeepSpeed");
}

}  // namespace sluice
