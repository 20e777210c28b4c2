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
// A file of data.text: as plain text, as JSON lines and as .json; as gzip if the bytes are gzip.
void fuzz_documents(std::span<const std::byte> bytes);
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
