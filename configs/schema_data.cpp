// The section `data` of the schema.
#include "configs/schema_table.hpp"

namespace sluice::schema_table {
namespace {

RecordMaker<BlendPart> blend_fields() {
  using P = BlendPart;
  return RecordMaker<P>()
      .field("path", &P::path, needed_path(), "As one of data.train.")
      .required()
      .field("weight", &P::weight, number(kAboveZero), "Share, relative to the other weights.");
}

RecordMaker<SftPart> sft_fields() {
  using P = SftPart;
  return RecordMaker<P>()
      .field("path", &P::path, needed_path(), "A file, a folder or a glob of JSON lines.")
      .required()
      .field("format", &P::format, one_of({"auto", "sharegpt", "openai", "alpaca", "completion"}),
             "auto: by the keys of the first object.")
      .field("weight", &P::weight, number(kAboveZero), "Share, relative to the other weights.");
}

RecordMaker<ValidSet> valid_set_fields() {
  using S = ValidSet;
  return RecordMaker<S>()
      .field("name", &S::name, {.type = KeyType::kPath, .may_be_empty = false, .noun = "name"},
             "In the log and in metrics.jsonl.")
      .required()
      .field("path", &S::path, paths(), "As data.train.")
      .required();
}

bool trains_on_conversations(const RunConfig& run) { return !run.data.sft.empty(); }

}  // namespace

Section data_section() {
  using O = DataOptions;
  return SectionMaker("data", &RunConfig::data, "The source of the tokens.")
      .key("text", &O::text, paths(),
           "Text files, folders or globs (** crosses folders), relative to the working directory. "
           "JSON lines (.jsonl), Parquet, gzip and zstd are read. One of text, train and blend.")
      .example("\"corpus/**/*.txt\"")
      .key("json_key", &O::json_key, {.type = KeyType::kPath, .may_be_empty = false, .noun = "key"},
           "The key of a JSON line, or the column of Parquet, that holds the text of a document.")
      .when("the data has JSON lines or Parquet")
      .key("train", &O::train, paths(),
           "Data to train on: prefixes of Megatron .bin/.idx pairs, or text as above, which is "
           "tokenised into the cache at its first use.")
      .example("corpus/shard_00")
      .records("blend", &O::blend, blend_fields(),
               "Data to train on in exact shares of the samples, instead of train. After every "
               "draw a part has its share, give or take a draw or two; it has epochs of its own. "
               "Each path is as one of train, and split applies to each part.")
      .example("[{path: corpus/code, weight: 0.3}, {path: corpus/prose, weight: 0.7}]")
      .records("sft", &O::sft, sft_fields(),
               "Conversations to train on, instead of train: several of them are packed into a "
               "row, positions restart in each, and attention does not cross. valid, valid_sets "
               "and test then name conversations too, and split takes whole conversations.")
      .example("[{path: talks.jsonl, weight: 2}, {path: more.json, format: alpaca}]")
      .key("chat_template", &O::chat_template, path(),
           "The Jinja file, tokenizer_config.json or folder of the chat template; empty: the "
           "tokenizer's folder.")
      .when("data.sft is given")
      .example("hf/model/chat_template.jinja")
      .key("train_on", &O::train_on, one_of({"assistant", "all", "last"}),
           "Which tokens of a conversation are learned: the assistant's answers, all, or the last "
           "answer.")
      .when("data.sft is given", trains_on_conversations)
      .key("truncate", &O::truncate, one_of({"error", "drop", "cut"}),
           "A conversation longer than model.seq ends the run, is left out, or is cut at its end.")
      .when("data.sft is given", trains_on_conversations)
      .key("valid", &O::valid, paths(),
           "Data to evaluate on, as train; empty: cut from the training data by split.")
      .when("train.eval_steps is above 0")
      .example("corpus/held_out")
      .records("valid_sets", &O::valid_sets, valid_set_fields(),
               "Further validation sets, each with a loss of its own (eval_losses in "
               "metrics.jsonl). An evaluation takes train.eval_steps batches of each.")
      .when("train.eval_steps is above 0")
      .example("[{name: code, path: corpus/code_held_out}]")
      .key("test", &O::test, paths(),
           "Data of `sluice eval --test`, as train; empty: cut from the training data by split.")
      .when("`sluice eval --test` runs")
      .example("corpus/test")
      .key("split", &O::split, numbers(3, 1, kAtLeastZero),
           "Shares of training, validation and, if given, the test set; of any sum.")
      .when("data.valid or data.test is empty",
            [](const RunConfig& run) { return run.data.valid.empty() || run.data.test.empty(); })
      .key(
          "document_mask", &O::document_mask, boolean(),
          "Whether a row is a sequence of separate documents: positions restart in each, attention "
          "does not cross, and memory stays that of whole rows.")
      .key(
          "tokenizer", &O::tokenizer, needed_path(),
          "bytes (256 values and an end of text), a tokenizer's file or folder (tokenizer.json of "
          "BPE or Unigram, SentencePiece's tokenizer.model, vocab.json with merges.txt, tiktoken's "
          "ranks), or bpe:N: byte-level BPE of N ids, learned from the training text at its first "
          "use.")
      .when("the data has text")
      .example("hf/gpt2")
      .key("cache_dir", &O::cache_dir, path(),
           "Folder of token caches; empty: .cache/tokens beside the configuration.")
      .when("the data has text")
      .example("/fast/tokens");
}

}  // namespace sluice::schema_table
