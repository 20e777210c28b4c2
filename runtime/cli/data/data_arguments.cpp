// The options of `data`.
#include "runtime/cli/argument_checks.hpp"
#include "runtime/cli/command_line.hpp"

namespace sluice {
namespace {

void add_prepare(CLI::App& group, DataCommand& command) {
  CLI::App* sub = group.add_subcommand(
      "prepare", "text to Megatron's .bin/.idx (-o), or the token caches of a configuration");
  sub->add_option(
         "inputs", command.inputs,
         "files, folders or globs of text, JSON lines and Parquet; without -o, the YAML file")
      ->required();
  auto* output = sub->add_option("-o,--output", command.output,
                                 "prefix of the files: PREFIX_<key>_document.bin and .idx");
  sub->add_option("--tokenizer", command.tokenizer, "bytes, a folder or a file")
      ->capture_default_str()
      ->needs(output);
  sub->add_option("--json-key", command.json_keys,
                  "of JSON lines: the key of the text; several give an output each")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->capture_default_str()
      ->needs(output);
  sub->add_flag("--append-eod", command.append_eod, "end-of-text after each document")
      ->needs(output);
  sub->add_option("--threads", command.threads, "default: the machine's, at most 16")
      ->check(whole_number(1, 1024))
      ->needs(output);
  sub->add_option("--set", command.overrides, "section.key=value, of the YAML file")
      ->allow_extra_args(false)
      ->excludes(output);
}

void add_merge(CLI::App& group, DataCommand& command) {
  CLI::App* sub = group.add_subcommand("merge", "lay .bin/.idx pairs end to end");
  sub->add_option("inputs", command.inputs, "prefixes, in this order")->required();
  sub->add_option("-o,--output", command.output, "prefix of the new pair")->required();
}

void add_split(CLI::App& group, DataCommand& command) {
  CLI::App* sub = group.add_subcommand(
      "split", "divide the documents of a .bin/.idx pair: _train, _valid, _test");
  sub->add_option("input", command.inputs, "a prefix")->required()->expected(1);
  sub->add_option("-o,--output", command.output, "prefix of the parts")->required();
  sub->add_option("--shares", command.shares, "of the documents: 95,5 or 90,5,5")
      ->delimiter(',')
      ->expected(1, 3)
      ->capture_default_str();
  sub->add_option("--seed", command.seed, "of the choice")
      ->check(whole_number(0, ~std::uint64_t{0}))
      ->capture_default_str();
}

void add_shuffle(CLI::App& group, DataCommand& command) {
  CLI::App* sub = group.add_subcommand("shuffle", "the documents of a pair in another order");
  sub->add_option("input", command.inputs, "a prefix")->required()->expected(1);
  sub->add_option("-o,--output", command.output, "prefix of the new pair")->required();
  sub->add_option("--seed", command.seed, "of the order")
      ->check(whole_number(0, ~std::uint64_t{0}))
      ->capture_default_str();
  sub->add_option("--memory", command.memory_bytes, "for documents: 1GiB; the rest waits on disk")
      ->transform(size_in_bytes(false, "1GiB"))
      ->default_str("1GiB");
}

void add_cat(CLI::App& group, DataCommand& command) {
  CLI::App* sub = group.add_subcommand("cat", "decode the documents of a pair as JSON lines");
  sub->add_option("input", command.inputs, "a prefix")->required()->expected(1);
  sub->add_option("--tokenizer", command.tokenizer, "bytes, a folder or a file")
      ->capture_default_str();
  sub->add_option("--first", command.first, "the first document, from 0")
      ->check(whole_number(0))
      ->capture_default_str();
  sub->add_option("--count", command.count, "of documents; none: all")->check(whole_number(1));
  sub->add_flag("--raw", command.raw, "text alone, a line end after each document");
}

void add_stats(CLI::App& group, DataCommand& command) {
  CLI::App* sub = group.add_subcommand(
      "stats", "documents, tokens, lengths and frequent tokens of text or .bin/.idx pairs");
  sub->add_option("inputs", command.inputs, "prefixes; files, folders or globs of text")
      ->required();
  sub->add_option("--tokenizer", command.stats_tokenizer,
                  "bytes, a folder or a file; default: bytes for text, none for pairs");
  sub->add_option_function<std::string>(
         "--json-key", [&command](const std::string& key) { command.json_keys = {key}; },
         "of JSON lines: the key of the text")
      ->default_str("text");
  sub->add_option("--top", command.count, "number of most frequent tokens")
      ->check(whole_number(1, 1'000'000))
      ->default_str("20");
  sub->add_option("--threads", command.threads, "default: the machine's, at most 16")
      ->check(whole_number(1, 1024));
  sub->add_flag("--json", command.json, "one JSON object");
  sub->add_option("--html", command.html, "write a page with charts to this file as well");
}

}  // namespace

void add_data(CLI::App& app, DataCommand& command) {
  CLI::App* group = app.add_subcommand("data", "prepare and look at training data");
  group->require_subcommand(1);
  add_prepare(*group, command);
  CLI::App* inspect = group->add_subcommand("inspect", "build the token caches; say what is there");
  inspect->add_option("config", command.inputs, "the YAML file")->required()->expected(1);
  inspect->add_option("--set", command.overrides, "section.key=value")->allow_extra_args(false);
  inspect->add_option("--template", command.chat_template, "instead of data.chat_template");
  inspect
      ->add_option("--samples", command.samples, "conversations of each part of data.sft to show")
      ->check(whole_number(0))
      ->capture_default_str();
  add_corpus(*group, command.corpus);
  add_merge(*group, command);
  add_split(*group, command);
  add_shuffle(*group, command);
  add_cat(*group, command);
  add_stats(*group, command);
}

}  // namespace sluice
