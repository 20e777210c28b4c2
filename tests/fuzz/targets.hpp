// Fuzz targets. Each takes any bytes and returns; any exception other than its reader's own error
// is a defect. libFuzzer runs them (fuzz_main.cpp), and mutation tests run them on fixed bytes.
#pragma once

#include <cstddef>
#include <span>

namespace sluice::testing {

void fuzz_safetensors(std::span<const std::byte> bytes);
// The bytes without the two checksums. The target computes these, so that mutations reach the
// content behind them.
void fuzz_manifest(std::span<const std::byte> bytes);
// A Hugging Face folder's config.json and tokenizer.json.
void fuzz_config(std::span<const std::byte> bytes);
void fuzz_tokenizer(std::span<const std::byte> bytes);
// A SentencePiece model; the reader, the normaliser and both kinds of model.
void fuzz_sentencepiece(std::span<const std::byte> bytes);
// A file of data.text: as plain text, as JSON lines and as .json; as gzip if the bytes are gzip.
void fuzz_documents(std::span<const std::byte> bytes);
// A Parquet file: all columns, and one column of strings. REQUIRES: libsluice_parquet.so.
void fuzz_parquet(std::span<const std::byte> bytes);
// A chat template, rendered and encoded with a fixed conversation.
void fuzz_chat_template(std::span<const std::byte> bytes);
// A file of data.sft in each format.
void fuzz_conversations(std::span<const std::byte> bytes);
// A file of `sluice data clean`: as JSON lines and as plain text, cut into units or not.
void fuzz_corpus(std::span<const std::byte> bytes);
// An .idx file beside a .bin of 64 bytes: both readers.
void fuzz_indexed(std::span<const std::byte> bytes);
// The record of `sluice data prepare` without the checksum, which the target computes.
void fuzz_prepare_record(std::span<const std::byte> bytes);
// A DeepSpeed configuration: the reader of Hjson, the key table, the rules.
void fuzz_deepspeed_config(std::span<const std::byte> bytes);
// Files of torch.save: the pickle alone, and the zip around it.
void fuzz_pickle(std::span<const std::byte> bytes);
void fuzz_torch(std::span<const std::byte> bytes);
// The pickle of a Megatron file with storages of zeros: layers, and the optimizer's states. Uses a
// folder of its own for temporary files.
void fuzz_megatron(std::span<const std::byte> bytes);
// The same as every file of a DeepSpeed checkpoint of one rank.
void fuzz_deepspeed(std::span<const std::byte> bytes);
// The .metadata of torch.distributed.checkpoint.
void fuzz_dist_metadata(std::span<const std::byte> bytes);

}  // namespace sluice::testing
