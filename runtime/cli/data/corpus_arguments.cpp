// The options of `data clean` and `data dedupe`.
#include "runtime/cli/argument_checks.hpp"
#include "runtime/cli/command_line.hpp"

namespace sluice {
namespace {

void add_common(CLI::App& sub, CorpusCommand& command) {
  sub.add_option("inputs", command.inputs,
                 "files, folders or globs of JSON lines and text; .gz, .zst");
  sub.add_option("-o,--output", command.output,
                 "folder of the results; the same command again continues a killed one");
  sub.add_option("--json-key", command.json_key, "of JSON lines: the key of the text")
      ->capture_default_str();
  sub.add_option("--url-key", command.url_key, "of JSON lines: the key of the URL")
      ->capture_default_str()
      ->each([&command](const std::string&) { command.names_urls = true; });
  sub.add_option("--threads", command.threads, "default: the machine's, at most 16")
      ->check(whole_number(1, 1024));
  sub.add_option("--unit", command.unit_bytes, "input of one output file")
      ->transform(size_in_bytes(false, "64MiB"))
      ->default_str("64MiB");
  sub.add_flag("--json", command.json, "the counts as JSON");
}

void add_clean(CLI::App& group, CorpusCommand& command) {
  CLI::App* sub = group.add_subcommand("clean", "documents through filters: kept/, rejected/");
  add_common(*sub, command);
  sub->add_option("--recipe", command.recipe, "openwebtext, fineweb, none")->capture_default_str();
  sub->add_option("--filter", command.filters,
                  "NAME or NAME:option=value,...; over the recipe's options; repeatable")
      ->allow_extra_args(false);
  sub->add_option("--without", command.without, "a filter of the recipe to leave out; repeatable")
      ->allow_extra_args(false);
  sub->add_option("--tokenizer", command.tokenizer, "counts the tokens of the filter length");
  sub->add_flag("--list-filters", command.list, "print the filters and their options");
}

void add_dedupe(CLI::App& group, CorpusCommand& command) {
  CLI::App* sub =
      group.add_subcommand("dedupe", "documents that are equal, or nearly so: kept/, removed/");
  add_common(*sub, command);
  sub->add_option("--preset", command.preset, "fineweb, openwebtext, exact, none")
      ->capture_default_str();
  sub->add_option("--shingle", command.shingle, "words:5, characters:24");
  sub->add_option("--bands", command.bands, "of the signature")->check(whole_number(1, 1024));
  sub->add_option("--rows", command.rows, "values of a band")->check(whole_number(1, 1024));
  sub->add_option("--threshold", command.threshold,
                  "least estimated similarity of two texts that share a band; 0: any")
      ->check(CLI::Range(0.0, 1.0));
  sub->add_option("--seed", command.seed, "of the hash functions")
      ->check(whole_number(0, ~std::uint64_t{0}));
  sub->add_flag("--urls", command.urls, "documents of one URL are duplicates");
  sub->add_option("--against", command.against,
                  "evaluation sets: cuts their runs of 13 words out of the documents; repeatable")
      ->allow_extra_args(false);
  sub->add_option("--memory", command.memory_bytes, "of the sorts")
      ->transform(size_in_bytes(false, "64MiB"))
      ->default_str("256MiB");
}

}  // namespace

void add_corpus(CLI::App& group, CorpusCommand& command) {
  add_clean(group, command);
  add_dedupe(group, command);
}

}  // namespace sluice
