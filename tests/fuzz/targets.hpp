// What is fuzzed: each takes any bytes and returns; anything but its reader's own error is a
// defect. Run by libFuzzer (fuzz_main.cpp) and, on bytes that are the same every time, by mutation
// tests.
#pragma once

#include <cstddef>
#include <span>

namespace sluice::testing {

void fuzz_safetensors(std::span<const std::byte> bytes);
// The bytes without the two checksums, which are made right: what lies behind them is reached.
void fuzz_manifest(std::span<const std::byte> bytes);
// A Hugging Face folder's config.json and tokenizer.json.
void fuzz_config(std::span<const std::byte> bytes);
void fuzz_tokenizer(std::span<const std::byte> bytes);
// A file of data.text: as plain text, as JSON lines and as .json, gzip where the bytes are.
void fuzz_documents(std::span<const std::byte> bytes);
// What torch.save writes: the pickle alone, and the zip around it.
void fuzz_pickle(std::span<const std::byte> bytes);
void fuzz_torch(std::span<const std::byte> bytes);
// The pickle of a file of Megatron's, whose storages are zeros: layers, and the optimizer's states.
// In a folder of its own for temporary files.
void fuzz_megatron(std::span<const std::byte> bytes);
// The .metadata of torch.distributed.checkpoint.
void fuzz_dist_metadata(std::span<const std::byte> bytes);

}  // namespace sluice::testing
