// Open sources of tokens, and what of the options holds for documents and conversations alike.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/data/data_options.hpp"
#include "runtime/data/sample_mix.hpp"
#include "runtime/data/split_plan.hpp"
#include "runtime/data/tokenizer/tokenizer.hpp"

namespace sluice {

struct NamedParts {
  std::string name;
  std::vector<MixPart> parts;
};

struct DataSets {
  // Nothing if all data are tokens and no key names one, or if it is still to be learned.
  std::unique_ptr<Tokenizer> tokenizer;
  std::string tokenizer_spec;               // data.tokenizer, or the folder of the learned one
  std::vector<MixPart> train, valid, test;  // a part for each of data.blend or data.sft, else one
  std::vector<NamedParts> valid_sets;
  // False: a cache or the learned tokenizer is missing, so that parts are empty
  // (Caches::kExisting).
  bool complete = true;
};

enum class Caches {
  kBuild,     // missing caches are built
  kExisting,  // missing caches are left out, and logged
};

// Told of the tokenizer before text becomes tokens, which may take hours. May throw.
using OnTokenizer = std::function<void(const Tokenizer& tokenizer)>;

// A share is cut off the training data only where no key names the data.
[[nodiscard]] SplitShares shares_of(const DataOptions& options);
// data.cache_dir, or its default.
[[nodiscard]] std::string cache_dir_of(const DataOptions& options);

}  // namespace sluice
