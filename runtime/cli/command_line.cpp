#include "runtime/cli/command_line.hpp"

#include <unistd.h>

#include <memory>
#include <string>

#include "base/bytes.hpp"
#include "runtime/cli/argument_checks.hpp"
#include "runtime/cli/help/help_text.hpp"
#include "runtime/cli/help/version.hpp"
#include "runtime/launch/hosts/agent.hpp"
#include "runtime/launch/rank_env.hpp"
#include "runtime/observe/terminal.hpp"

namespace sluice {
namespace {

// Whether this program's launcher started this process: its arguments follow the user's and hold in
// their place. A user who gives an option twice is refused.
bool adds_arguments() { return has_launcher() || agent_place(); }

void add_train(CLI::App& app, Arguments& args) {
  CLI::App* train = app.add_subcommand("train", "train a model as a YAML file says");
  train->add_option("config", args.train.config, "the YAML file")->required();
  train->add_option("--set", args.train.overrides, "section.key=value, over the file; repeatable")
      ->allow_extra_args(false);
  train->add_option("--nproc", args.train.nproc, "ranks on this host, over launch.nproc")
      ->check(whole_number(1));
  train->add_flag("--dry-run", args.train.dry_run, "print the plan, start nothing");
  auto* resume = train
                     ->add_option("--resume", args.train.resume,
                                  "auto: from the newest checkpoint in checkpoint.dir, if there is "
                                  "one; or a checkpoint's folder; never")
                     ->capture_default_str();
  if (adds_arguments()) resume->take_last();  // of a restart, behind the user's
}

void add_plan(CLI::App& app, Arguments& args) {
  CLI::App* plan =
      app.add_subcommand("plan", "memory and time of a run before it starts; no GPU needed");
  plan->add_option("config", args.plan.config, "the YAML file")->required();
  plan->add_option("--set", args.plan.overrides, "section.key=value, over the file; repeatable")
      ->allow_extra_args(false);
  plan->add_option("--world", args.plan.world, "ranks of the whole job, in place of launch.nproc")
      ->check(CLI::Range(1, 1 << 20));
  plan->add_option("--profile", args.plan.profile,
                   "the machine: a name of configs/machines, or a file; none: this one");
  plan->add_flag("--json", args.plan.json, "print the plan as JSON");
  plan->add_flag("--compare", args.plan.compare,
                 "a table of every ZeRO stage and offload tier: what fits");
  plan->add_flag("--suggest", args.plan.suggest,
                 "find the fastest settings that fit, as --set lines");
  plan->add_option("--html", args.plan.html, "also write the plan as a web page to this file");
  plan->add_option_function<std::string>(
      "--tokens",
      [&args](const std::string& text) {
        const auto tokens = parse_count(text);
        if (!tokens || *tokens == 0) {
          throw CLI::ValidationError("--tokens", text + " is no count like 15T, 300B or 5e9");
        }
        args.plan.tokens = *tokens;
      },
      "print how long this many tokens take, such as 15T");
  plan->add_option("--endurance", args.plan.endurance_bytes,
                   "bytes that the drive may take in its life, for its wear")
      ->transform(size_in_bytes(true, "600TB"))
      ->default_str("600TB");
}

void add_eval(CLI::App& app, Arguments& args) {
  CLI::App* eval = app.add_subcommand("eval", "loss and perplexity of a model, file by file");
  eval->add_option("config", args.eval.config, "the YAML file")->required();
  eval->add_option(
      "--checkpoint", args.eval.checkpoint,
      "a run's folder, a checkpoint, a folder of them: the newest, or a Hugging Face folder; "
      "none: model.from");
  eval->add_option("--text", args.eval.text,
                   "files, folders or globs instead of the validation data")
      ->allow_extra_args(false);
  eval->add_flag("--test", args.eval.test, "the test set (data.test, or its share of data.split)")
      ->excludes("--text");
  eval->add_option("--stride", args.eval.stride,
                   "tokens between windows, default model.seq; what windows share is context only")
      ->check(whole_number(1));
  eval->add_option("--set", args.eval.overrides, "section.key=value, over the file; repeatable")
      ->allow_extra_args(false);
  eval->add_option("--nproc", args.eval.nproc, "ranks on this host")
      ->check(whole_number(1))
      ->capture_default_str();
  eval->add_flag("--json", args.eval.json, "for machines");
}

void add_generate(CLI::App& app, Arguments& args) {
  GenerateCommand& to = args.generate;
  CLI::App* generate = app.add_subcommand("generate", "go on from a text");
  generate->add_option("config", to.config, "a YAML file; none: the weights' own configuration");
  generate->add_option(
      "--checkpoint", to.checkpoint,
      "a run's folder, a checkpoint, a folder of them: the newest, or a Hugging Face folder; "
      "none: model.from");
  auto* text = generate->add_option("--prompt", to.prompt, "none: standard input");
  auto* file = generate->add_option("--prompt-file", to.prompt_file, "a file with the prompt");
  if (adds_arguments()) {
    file->take_last();  // behind the user's
  } else {
    file->excludes(text);  // ranks get both
  }
  generate->add_option("--max-tokens", to.max_tokens, "at most so many; default 256")
      ->check(whole_number(1));
  generate->add_option("--temperature", to.sampling.temperature, "0: always the likeliest token")
      ->capture_default_str();
  generate->add_option("--top-k", to.sampling.top_k, "of the likeliest only; 0: all")
      ->check(whole_number(0))
      ->capture_default_str();
  generate->add_option("--top-p", to.sampling.top_p, "of those that together are so likely")
      ->capture_default_str();
  generate->add_option("--seed", to.sampling.seed, "of the draws")
      ->check(whole_number(0, ~std::uint64_t{0}))
      ->capture_default_str();
  generate->add_flag("--ignore-end-of-text", to.ignore_end_of_text, "go on to --max-tokens");
  generate->add_flag("--no-bos", to.no_bos,
                     "not the tokenizer's tokens before a text, as <|begin_of_text|>");
  auto* echo = generate->add_flag("--echo", to.echo, "print the prompt as well");
  auto* chat = generate
                   ->add_flag("--chat", to.chat,
                              "talk by the chat template: each line of standard input is a "
                              "question, or --prompt is the only one")
                   ->excludes(echo);
  generate
      ->add_option("--template", to.chat_template,
                   "a chat_template.jinja, tokenizer_config.json or folder; none: "
                   "data.chat_template")
      ->needs(chat);
  generate->add_option("--set", to.overrides, "section.key=value; repeatable")
      ->allow_extra_args(false);
  generate->add_option("--nproc", to.nproc, "ranks on this host")
      ->check(whole_number(1))
      ->capture_default_str();
  generate->add_flag("--json", to.json, "for machines");
}

void add_tokenizer(CLI::App& app, Arguments& args) {
  CLI::App* group = app.add_subcommand("tokenizer", "train a tokenizer, encode, decode");
  group->require_subcommand(1);
  for (const char* name : {"encode", "decode"}) {
    CLI::App* sub = group->add_subcommand(name, std::string(name) + " a file or standard input");
    sub->add_option("--tokenizer", args.tokenizer.tokenizer, "bytes, a folder or a file")
        ->capture_default_str();
    sub->add_option("input", args.tokenizer.input, "a file; none: standard input");
  }
  CLI::App* train = group->add_subcommand("train", "learn a byte-level BPE vocabulary");
  train->add_option("text", args.tokenizer_train.text, "files, folders, globs")->required();
  train
      ->add_option("--json-key", args.tokenizer_train.json_key,
                   "of JSON lines: the key of the text")
      ->capture_default_str();
  train->add_option("--vocab-size", args.tokenizer_train.vocab_size, "ids, 257 or more")
      ->required();
  train
      ->add_option("-o,--output", args.tokenizer_train.out_dir, "folder for vocab.json, merges.txt")
      ->required();
}

void add_completion(CLI::App& app, Arguments& args) {
  CLI::App* completion =
      app.add_subcommand("completion", "print a script that completes for a shell");
  completion->add_option("shell", args.shell, "bash, zsh or fish")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
}

}  // namespace

void add_commands(CLI::App& app, Arguments& args) {
  app.formatter(std::make_shared<HelpText>(terminal_info(STDOUT_FILENO).colors));
  app.set_version_flag("--version", version_text, "commit, libtorch, CUDA, instruction set");
  add_train(app, args);
  add_plan(app, args);
  add_eval(app, args);
  add_generate(app, args);
  add_tokenizer(app, args);
  add_data(app, args.data);
  add_migrate(app, args.migrate);
  add_tool_commands(app, args);
  add_completion(app, args);
  add_verbosity(app, args);
}

}  // namespace sluice
