#include "tests/configs/broken_cases.hpp"

namespace sluice::testing {

// One value that is not what its key takes.
const std::vector<Broken>& broken_values() {
  static const std::vector<Broken> cases{
      {"a word for a count",
       "train:\n"
       "  steps: many\n",
       "c.yaml:2:10: train.steps: found 'many', expected a whole number >= 0"},
      {"a fraction for a count",
       "train:\n"
       "  steps: 1.5\n",
       "c.yaml:2:10: train.steps: found '1.5', expected a whole number >= 0"},
      {"a fraction of thousands",
       "train:\n"
       "  steps: 1.0005k\n",
       "c.yaml:2:10: train.steps: found '1.0005k', expected a whole number >= 0"},
      {"a negative count",
       "train:\n"
       "  micro_batch: -1\n",
       "c.yaml:2:16: train.micro_batch: '-1' is out of range, expected a whole number from 1 to "
       "2147483647"},
      {"zero where one is the least", "train: {micro_batch: 0}\n",
       "c.yaml:1:22: train.micro_batch: '0' is out of range, expected a whole number from 1 to "
       "2147483647"},
      {"a count in hexadecimal", "train: {steps: 0x10}\n",
       "c.yaml:1:16: train.steps: found '0x10', expected a whole number >= 0"},
      {"a count above the bound", "model: {hidden: 3B}\n",
       "c.yaml:1:17: model.hidden: '3B' is out of range, expected a whole number from 1 to "
       "2147483647"},
      {"a huge count", "train: {seed: 99999999999999999999}\n",
       "c.yaml:1:15: train.seed: '99999999999999999999' is out of range, expected a whole number "
       "from 0 to 9223372036854775807"},
      {"a count with an endless exponent", "train: {steps: 1e999}\n",
       "c.yaml:1:16: train.steps: found '1e999', expected a whole number >= 0"},
      {"a bad unit of a count", "train: {steps: 5 thousand}\n",
       "c.yaml:1:16: train.steps: found '5 thousand', expected a whole number >= 0"},
      {"a bool for a count", "model: {layers: true}\n",
       "c.yaml:1:17: model.layers: found 'true', expected a whole number >= 1"},
      {"a count without a value",
       "model:\n"
       "  layers:\n"
       "  hidden: 64\n",
       "c.yaml:2:3: model.layers: found no value, expected a whole number >= 1"},
      {"a null", "model: {layers: ~}\n",
       "c.yaml:1:9: model.layers: found no value, expected a whole number >= 1"},
      {"a map for a count",
       "model:\n"
       "  layers: {n: 4}\n",
       "c.yaml:2:11: model.layers: found a map, expected a whole number >= 1"},
      {"a list for a count", "model: {layers: [4]}\n",
       "c.yaml:1:17: model.layers: found a list, expected a whole number >= 1"},
      {"a stage above 3", "zero: {stage: 4}\n",
       "c.yaml:1:15: zero.stage: '4' is out of range, expected a whole number from 0 to 3"},
      {"a word for auto", "parallel: {data: automatic}\n",
       "c.yaml:1:18: parallel.data: found 'automatic', expected a whole number >= 0, or 'auto'"},
      {"a bad size",
       "memory:\n"
       "  device: 24Gigs\n",
       "c.yaml:2:11: memory.device: found '24Gigs', expected a size >= 1 such as 24GiB, 512MiB or "
       "4096, or 'none'"},
      {"a negative size", "memory: {device: -1}\n",
       "c.yaml:1:18: memory.device: '-1' is out of range, expected a size from 1 to "
       "9223372036854775807 bytes"},
      {"no memory at all", "memory: {nvme: 0}\n",
       "c.yaml:1:16: memory.nvme: '0' is out of range, expected a size from 1 to "
       "9223372036854775807 bytes; write none for no limit, or 1 where nothing may be"},
      {"a size of a fraction of a byte", "zero: {bucket_bytes: 0.3B}\n",
       "c.yaml:1:22: zero.bucket_bytes: found '0.3B', expected a size >= 1 such as 24GiB, 512MiB "
       "or 4096"},
      {"an empty bucket", "zero: {bucket_bytes: 0}\n",
       "c.yaml:1:22: zero.bucket_bytes: '0' is out of range, expected a size from 1 to "
       "9223372036854775807 bytes"},
      {"a huge size", "memory: {device: 99999999999999999999}\n",
       "c.yaml:1:18: memory.device: '99999999999999999999' is out of range, expected a size from 1 "
       "to 9223372036854775807 bytes"},
      {"a bad time", "launch: {timeout: 5 minutes}\n",
       "c.yaml:1:19: launch.timeout: found '5 minutes', expected a time in (0, 10000000] such as "
       "30s, 5m, 2h or 600"},
      {"no time at all", "launch: {timeout: 0s}\n",
       "c.yaml:1:19: launch.timeout: '0s' is out of range, expected a time in (0, 10000000] such "
       "as 30s, 5m, 2h or 600"},
      {"a word for a number", "optimizer: {lr: small}\n",
       "c.yaml:1:17: optimizer.lr: found 'small', expected a number >= 0"},
      {"not a number", "optimizer: {lr: .nan}\n",
       "c.yaml:1:17: optimizer.lr: found '.nan', expected a number >= 0"},
      {"nan by another name", "optimizer: {lr: nan}\n",
       "c.yaml:1:17: optimizer.lr: found 'nan', expected a number >= 0"},
      {"infinity", "optimizer: {lr: .inf}\n",
       "c.yaml:1:17: optimizer.lr: found '.inf', expected a number >= 0"},
      {"a number beyond double", "optimizer: {lr: 1e999}\n",
       "c.yaml:1:17: optimizer.lr: '1e999' is out of range, expected a number >= 0"},
      {"a negative rate", "optimizer: {lr: -1e-3}\n",
       "c.yaml:1:17: optimizer.lr: '-1e-3' is out of range, expected a number >= 0"},
      {"an eps of zero", "optimizer: {eps: 0}\n",
       "c.yaml:1:18: optimizer.eps: '0' is out of range, expected a number above 0"},
      {"a dropout of one", "model: {dropout: 1}\n",
       "c.yaml:1:18: model.dropout: '1' is out of range, expected a number in [0, 1)"},
      {"a share above one", "offload: {device_fraction: 1.5}\n",
       "c.yaml:1:28: offload.device_fraction: '1.5' is out of range, expected a number in [0, 1]"},
      {"a map for a number", "optimizer: {lr: {max: 1}}\n",
       "c.yaml:1:17: optimizer.lr: found a map, expected a number >= 0"},
      {"a bad enum",
       "schedule:\n"
       "  type: cosin\n",
       "c.yaml:2:9: schedule.type: found 'cosin', expected one of constant, linear, cosine, wsd; "
       "did you mean 'cosine'?"},
      {"a bad enum without a neighbour", "train: {dtype: double}\n",
       "c.yaml:1:16: train.dtype: found 'double', expected one of fp32, bf16, fp16"},
      {"PyTorch's name of a dtype", "train: {dtype: bfloat16}\n",
       "c.yaml:1:16: train.dtype: found 'bfloat16', expected one of fp32, bf16, fp16; did you mean "
       "'bf16'?"},
      {"NumPy's name of a dtype", "train: {dtype: float32}\n",
       "c.yaml:1:16: train.dtype: found 'float32', expected one of fp32, bf16, fp16; did you mean "
       "'fp32'?"},
      {"a home folder", "output: {dir: ~/runs}\n",
       "c.yaml:1:15: output.dir: '~/runs' is not there: only a shell knows what ~ is; write "
       "${HOME}/runs"},
      {"a home folder in a list", "data: {train: [a, ~/b]}\n",
       "c.yaml:1:19: data.train: '~/b' is not there: only a shell knows what ~ is; write "
       "${HOME}/b"},
      {"a home folder in a record", "data: {sft: [{path: ~/talks.jsonl}]}\n",
       "c.yaml:1:21: data.sft[0].path: '~/talks.jsonl' is not there: only a shell knows what ~ is; "
       "write ${HOME}/talks.jsonl"},
      {"an enum in capitals", "train: {dtype: FP32}\n",
       "c.yaml:1:16: train.dtype: found 'FP32', expected one of fp32, bf16, fp16; did you mean "
       "'fp32'?"},
      {"an enum of one", "optimizer: {type: adam}\n",
       "c.yaml:1:19: optimizer.type: found 'adam', expected one of adamw, lion, sgd; did you mean "
       "'adamw'?"},
      {"a list for an enum", "model: {type: [gpt2]}\n",
       "c.yaml:1:15: model.type: found a list, expected one of gpt2, llama, mistral, qwen2"},
      {"yes for true", "model: {tie_embeddings: yes}\n",
       "c.yaml:1:25: model.tie_embeddings: found 'yes', expected true or false; did you mean "
       "'true'?"},
      {"Off for false", "output: {trace: Off}\n",
       "c.yaml:1:17: output.trace: found 'Off', expected true or false; did you mean 'false'?"},
      {"a word for a bool", "output: {trace: maybe}\n",
       "c.yaml:1:17: output.trace: found 'maybe', expected true or false"},
      {"a map for a path", "output: {dir: {name: x}}\n",
       "c.yaml:1:15: output.dir: found a map, expected a path"},
      {"a control character in a path", "output: {dir: \"a\\x07b\"}\n",
       "c.yaml:1:15: output.dir: 'a?b' holds control characters, expected a path"},
      {"no tokenizer", "data: {tokenizer: \"\"}\n",
       "c.yaml:1:19: data.tokenizer: found '', expected a path"},
      {"a map among paths",
       "data:\n"
       "  text:\n"
       "    - a.txt\n"
       "    - {b: c}\n",
       "c.yaml:4:7: data.text: found a map, expected a path"},
      {"an empty path among paths", "data: {text: [a.txt, \"\"]}\n",
       "c.yaml:1:22: data.text: found '', expected a path"},
      {"nothing among paths", "data: {text: [a.txt, ~]}\n",
       "c.yaml:1:14: data.text: found no value, expected a path"},
      {"a number for a list of numbers", "data: {split: 95}\n",
       "c.yaml:1:15: data.split: found '95', expected a list of 2 to 3 numbers >= 0"},
      {"a list too short", "data: {split: [95]}\n",
       "c.yaml:1:15: data.split: found a list of 1, expected a list of 2 to 3 numbers >= 0"},
      {"a list too long", "data: {split: [90, 5, 5, 1]}\n",
       "c.yaml:1:15: data.split: found a list of 4, expected a list of 2 to 3 numbers >= 0"},
      {"a bad element", "optimizer: {betas: [0.9, high]}\n",
       "c.yaml:1:26: optimizer.betas: found 'high', expected a number in [0, 1)"},
      {"two bad elements",
       "optimizer:\n"
       "  betas:\n"
       "    - -0.1\n"
       "    - 1\n",
       "c.yaml:3:7: optimizer.betas: '-0.1' is out of range, expected a number in [0, 1)\n"
       "c.yaml:4:7: optimizer.betas: '1' is out of range, expected a number in [0, 1)"},
  };
  return cases;
}

}  // namespace sluice::testing
