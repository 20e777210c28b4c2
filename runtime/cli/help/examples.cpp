#include "runtime/cli/help/examples.hpp"

namespace sluice {

const std::vector<Example>& all_examples() {
  // clang-format off
  static const std::vector<Example> examples = {
      {"", "train configs/quickstart.yaml", "a first run"},
      {"", "plan my.yaml --world 64 --profile h100-sxm", "what a run needs on another machine"},
      {"", "generate --checkpoint runs/my --prompt 'Once upon'", "use the trained model"},
      {"", "explain train.clip", "what a key means"},

      {"train", "train my.yaml --nproc 4", "four ranks on this host"},
      {"train", "train my.yaml --dry-run", "the plan of the run alone"},
      {"train", "train my.yaml --resume auto", "go on from the newest checkpoint"},
      {"train", "train my.yaml --set zero.stage=3 --set optimizer.lr=2e-4", "other values for two keys"},

      {"plan", "plan my.yaml", "this machine"},
      {"plan", "plan my.yaml --world 64 --profile h100-sxm --suggest", "64 GPUs; what to change"},
      {"plan", "plan my.yaml --tokens 300B --html plan.html", "the time for 300B tokens; a page"},

      {"eval", "eval runs/my/config.yaml --checkpoint runs/my", "the validation data of a run"},
      {"eval", "eval my.yaml --checkpoint hf/gpt2 --text 'books/*.txt' --stride 512", "other texts, overlapping windows"},

      {"generate", "generate --checkpoint runs/my --prompt 'def main('", "go on from a prompt"},
      {"generate", "generate --checkpoint runs/my --prompt-file a.txt --temperature 0", "always the likeliest token"},
      {"generate", "generate --checkpoint runs/chat --chat", "questions from the terminal"},

      {"tokenizer", "tokenizer train corpus/ --vocab-size 32000 -o tokenizer", "learn a vocabulary"},
      {"tokenizer encode", "tokenizer encode --tokenizer hf/gpt2 a.txt", "the ids of a file"},
      {"tokenizer decode", "tokenizer decode --tokenizer hf/gpt2 ids.txt", "the text of ids"},
      {"tokenizer train", "tokenizer train 'corpus/*.jsonl' --vocab-size 32000 -o tokenizer", "of JSON lines"},

      {"data", "data clean crawl/ -o clean --recipe fineweb", "filter documents"},
      {"data", "data prepare corpus/ -o data/corpus --tokenizer hf/gpt2", "text to token files"},
      {"data", "data stats data/corpus_text_document", "what the token files hold"},
      {"data prepare", "data prepare corpus/ -o data/corpus --tokenizer hf/gpt2 --append-eod", "text to Megatron's .bin/.idx"},
      {"data prepare", "data prepare my.yaml", "the token caches of a configuration"},
      {"data inspect", "data inspect my.yaml", "tokens and samples of the data"},
      {"data inspect", "data inspect sft.yaml --samples 1", "one conversation of each part"},
      {"data clean", "data clean crawl/ -o clean --recipe fineweb", "a recipe"},
      {"data clean", "data clean crawl/ -o clean --filter length:min_words=100", "a filter of one's own"},
      {"data clean", "data clean --list-filters", "the filters there are"},
      {"data dedupe", "data dedupe clean/kept -o unique", "near duplicates"},
      {"data dedupe", "data dedupe clean/kept -o unique --against tests.jsonl", "and no text of a test set"},
      {"data merge", "data merge a_text_document b_text_document -o all", "two pairs into one"},
      {"data split", "data split all -o all --shares 90,5,5", "training, validation, test"},
      {"data shuffle", "data shuffle all -o mixed --seed 7", "another order"},
      {"data cat", "data cat all --tokenizer hf/gpt2 --first 10 --count 2", "two documents as text"},
      {"data stats", "data stats corpus/ --tokenizer hf/gpt2 --html stats.html", "of text, with charts"},

      {"migrate", "migrate ds_config.json --world 8 -o my.yaml", "from DeepSpeed"},
      {"migrate", "migrate --megatron args.txt --world 8 --check", "from Megatron; the report alone"},

      {"bench", "bench step my.yaml --steps 5", "where a step's time goes"},
      {"bench", "bench comm --ranks 4", "collectives between four ranks"},
      {"bench step", "bench step my.yaml --nproc 2 --steps 5", "two ranks, five steps"},
      {"bench nvme", "bench nvme /mnt/nvme0 /mnt/nvme1 --blocks 1MiB,4MiB", "two drives"},
      {"bench comm", "bench comm --ranks 4 --bytes 1MiB,64MiB", "two sizes"},
      {"bench adam", "bench adam --elems 32M --dtype bf16", "an update of 32M parameters"},

      {"doctor", "doctor", "measure, and keep the rates for train and plan"},
      {"doctor", "doctor --quick --nvme-path /mnt/nvme0", "sooner, and another drive"},

      {"report", "report runs/my", "a page of a run: runs/my/report.html"},
      {"report", "report runs/a runs/b -o both.html", "two runs in one page"},
      {"report", "report runs/my --watch", "in a browser, while the run goes on"},

      {"checkpoint", "checkpoint ls runs/my", "what is saved"},
      {"checkpoint", "checkpoint export runs/my -o hf-model", "for other programs"},
      {"checkpoint ls", "checkpoint ls runs/my", "the checkpoints of a run"},
      {"checkpoint verify", "checkpoint verify runs/my", "all of a run"},
      {"checkpoint convert", "checkpoint convert runs/my -o small --weights-only", "the weights alone"},
      {"checkpoint export", "checkpoint export runs/my -o hf-model --dtype bf16", "the newest, in bf16"},
      {"checkpoint import", "checkpoint import hf/gpt2 -o gpt2", "from Hugging Face"},
      {"checkpoint import", "checkpoint import ds/global_step100 -o old --config my.yaml", "from DeepSpeed"},

      {"explain", "explain train.clip", "one key"},
      {"explain", "explain offload", "a section"},
      {"schema", "schema", "for an editor: sluice schema > sluice.schema.json"},
      {"completion", "completion bash", "for this shell: source <(sluice completion bash)"},
      {"completion", "completion fish", "kept: sluice completion fish > ~/.config/fish/completions/sluice.fish"},
  };
  // clang-format on
  return examples;
}

}  // namespace sluice
