// The architecture: gpt2, llama, mistral or qwen2, or the reason why none of them.
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "configs/migrate/peers/megatron_map.hpp"
#include "configs/value.hpp"

namespace sluice::migrate {
namespace {

class ModelMap {
 public:
  explicit ModelMap(MegatronRun& run) : args_(run.args), map_(run.map) {}

  void run() {
    const bool rope = is_rope();
    if (!check_positions(rope)) return;
    rope ? check_llama() : check_gpt2();
    sizes();
    heads(rope);
    feed_forward();
    vocabulary();
    weights();
    dropout();
    if (rope) rotary();
  }

 private:
  [[nodiscard]] std::string positions() const { return args_.text("--position-embedding-type"); }
  [[nodiscard]] bool is_rope() const {
    return positions() == "rope" || args_.has("--use-rotary-position-embeddings");
  }

  bool check_positions(bool rope) {
    if (rope || positions() == "learned_absolute") return true;
    map_.error("--position-embedding-type",
               positions() +
                   " positions: Sluice has learned_absolute (gpt2) and rope (llama, "
                   "mistral, qwen2); train another model");
    return false;
  }

  // Each line: the argument at fault, and what a model of the type has.
  void refuse(bool wrong, std::string_view argument, std::string_view type,
              const std::string& what) {
    if (!wrong) return;
    if (map_.draft().find(argument) == nullptr) argument = "--position-embedding-type";
    map_.error(argument, what + ": no architecture of Sluice; " + std::string(type));
  }

  void check_gpt2() {
    constexpr std::string_view kHas =
        "with learned positions a gpt2 has LayerNorm, gelu, biases and as many key as query heads";
    map_.set("--position-embedding-type", "model.type", "gpt2");
    refuse(args_.text("--normalization") != "LayerNorm", "--normalization", kHas,
           "learned positions with RMSNorm");
    refuse(args_.has("--swiglu"), "--swiglu", kHas, "learned positions with SwiGLU");
    refuse(args_.has("--disable-bias-linear"), "--disable-bias-linear", kHas,
           "learned positions without biases");
    refuse(args_.has("--group-query-attention") &&
               args_.count("--num-query-groups") != args_.count("--num-attention-heads"),
           "--group-query-attention", kHas, "learned positions with grouped queries");
    refuse(!args_.text("--window-size").empty(), "--window-size", kHas,
           "learned positions with a window");
    const std::int64_t rows = args_.count("--max-position-embeddings");
    const std::int64_t seq = sequence();
    if (rows == seq) return;
    map_.changed("--max-position-embeddings",
                 "the position table has " + std::to_string(rows) + " rows there and model.seq = " +
                     std::to_string(seq) + " rows here; no other row is used in training");
  }

  void check_llama() {
    constexpr std::string_view kHas =
        "with rotary positions a llama, mistral or qwen2 has --normalization RMSNorm, --swiglu "
        "and --disable-bias-linear";
    refuse(args_.text("--normalization") != "RMSNorm", "--normalization", kHas,
           "rotary positions with LayerNorm");
    refuse(!args_.has("--swiglu"), "--swiglu", kHas, "rotary positions without SwiGLU");
    refuse(!args_.has("--disable-bias-linear"), "--disable-bias-linear", kHas,
           "rotary positions with biases");
    const bool qwen = args_.has("--add-qkv-bias");
    std::string type = qwen ? "qwen2" : "llama";
    std::string_view from = qwen ? "--add-qkv-bias" : "--position-embedding-type";
    if (args_.has("--use-rotary-position-embeddings")) from = "--use-rotary-position-embeddings";
    if (window(qwen)) {
      type = "mistral";
      from = "--window-size";
    }
    map_.set(from, "model.type", type);
    if (map_.draft().find("--max-position-embeddings") != nullptr) {
      map_.reclass("--max-position-embeddings", KeyClass::kNotNeeded,
                   "rotary positions have no table");
    }
  }

  // True for a mistral. "(4096,0)": keys to the left and to the right.
  bool window(bool qwen) {
    const std::string text = args_.text("--window-size");
    if (text.empty()) return false;
    std::array<std::int64_t, 2> sides{};
    if (!read_pair(text, sides) || sides[0] < -1 || (sides[1] != 0 && sides[1] != -1)) {
      map_.error("--window-size", "found '" + text +
                                      "', expected two numbers, the second one 0; write "
                                      "--window-size 4095,0");
      return false;
    }
    if (sides[0] == -1) return false;
    if (qwen) {
      map_.error("--window-size",
                 "a window with --add-qkv-bias: no architecture of Sluice; a mistral has no "
                 "biases of q, k and v");
      return false;
    }
    const std::string keys = std::to_string(sides[0] + 1);
    map_.set("--window-size", "model.sliding_window", keys);
    map_.changed("--window-size", std::to_string(sides[0]) +
                                      " keys to the left there, the query's own not counted; " +
                                      keys + " keys with the query's own here");
    return true;
  }

  static bool read_pair(const std::string& text, std::array<std::int64_t, 2>& sides) {
    std::string plain;
    for (const char c : text) {
      if (c != '(' && c != ')' && c != ' ') plain += c;
    }
    const std::size_t comma = plain.find(',');
    if (comma == std::string::npos) return false;
    const std::string left = plain.substr(0, comma);
    const std::string right = plain.substr(comma + 1);
    if (!is_python_int(left) || !is_python_int(right)) return false;
    sides = {std::stoll(left), std::stoll(right)};
    return true;
  }

  [[nodiscard]] std::int64_t sequence() const {
    return args_.count(args_.has("--seq-length") ? "--seq-length" : "--encoder-seq-length");
  }

  void size(std::string_view argument, std::string_view key) {
    if (args_.count(argument) < 1) {
      map_.error(argument, "Megatron-LM needs a number above 0; give the argument");
    } else {
      map_.set(argument, key, args_.text(argument));
    }
  }

  void sizes() {
    size(args_.has("--encoder-num-layers") ? "--encoder-num-layers" : "--num-layers",
         "model.layers");
    size("--hidden-size", "model.hidden");
    size("--num-attention-heads", "model.heads");
    size(args_.has("--encoder-seq-length") ? "--encoder-seq-length" : "--seq-length", "model.seq");
    const std::int64_t rows = args_.count("--max-position-embeddings");
    if (rows < 1) {
      map_.error("--max-position-embeddings", "Megatron-LM needs the argument; give a number");
    } else if (rows < sequence()) {
      map_.error("--max-position-embeddings",
                 "fewer positions than --seq-length, Megatron-LM stops; give at least " +
                     std::to_string(sequence()));
    }
    if (args_.has("--num-layers") && args_.has("--encoder-num-layers")) {
      map_.error("--encoder-num-layers",
                 "Megatron-LM stops if --num-layers is given too; leave "
                 "one of both out");
    }
    if (args_.has("--seq-length") && args_.has("--encoder-seq-length")) {
      map_.error("--encoder-seq-length",
                 "Megatron-LM stops if --seq-length is given too; leave "
                 "one of both out");
    }
  }

  void heads(bool rope) {
    const std::int64_t hidden = args_.count("--hidden-size");
    const std::int64_t heads = args_.count("--num-attention-heads");
    if (hidden < 1 || heads < 1) return;
    const bool even = hidden % heads == 0;
    if (!args_.has("--kv-channels") && !even) {
      map_.error("--hidden-size",
                 "no multiple of --num-attention-heads, Megatron-LM stops; give "
                 "--kv-channels");
    }
    if (args_.has("--kv-channels") && (!even || args_.count("--kv-channels") != hidden / heads)) {
      if (rope) {
        map_.set("--kv-channels", "model.head_dim", args_.text("--kv-channels"));
      } else {
        map_.error("--kv-channels", "a gpt2 has heads of hidden / heads; leave the argument out");
      }
    }
    if (rope && args_.has("--group-query-attention")) {
      map_.set("--num-query-groups", "model.kv_heads", args_.text("--num-query-groups"));
    } else if (!args_.has("--group-query-attention") && args_.has("--num-query-groups")) {
      map_.reclass("--num-query-groups", KeyClass::kIgnored,
                   "no effect without --group-query-attention");
    }
  }

  void feed_forward() {
    const std::int64_t hidden = args_.count("--hidden-size");
    if (hidden < 1) return;
    if (args_.has("--ffn-hidden-size")) {
      map_.set("--ffn-hidden-size", "model.ffn", args_.text("--ffn-hidden-size"));
    } else if (args_.has("--swiglu")) {
      const auto width =
          static_cast<std::int64_t>((4.0 * static_cast<double>(hidden) * 2 / 3) / 64);
      map_.set_own("model.ffn", std::to_string(width * 64),
                   "--ffn-hidden-size, the default there with --swiglu: 8/3 x hidden, rounded "
                   "down to a multiple of 64");
    }
  }

  [[nodiscard]] std::int64_t padded_rows(std::int64_t tokens) const {
    const std::int64_t unit =
        args_.count("--make-vocab-size-divisible-by") *
        std::max<std::int64_t>(1, args_.count("--tensor-model-parallel-size"));
    const bool pads = !args_.has("--no-pad-vocab-size") && unit > 0 && unit < std::int64_t{1} << 31;
    return pads ? (tokens + unit - 1) / unit * unit : tokens;
  }

  void vocabulary() {
    const bool padded = args_.has("--padded-vocab-size");
    const std::string_view from = padded ? "--padded-vocab-size" : "--vocab-size";
    if (!args_.has(from)) {
      map_.missing("--vocab-size", "model.vocab",
                   "--set model.vocab=ROWS, the padded size that Megatron-LM prints at the start");
      return;
    }
    std::int64_t rows = args_.count(from);
    if (rows < 1) {
      map_.error(from, "Megatron-LM needs a number above 0; give one");
      return;
    }
    if (!padded) {
      const std::int64_t older = padded_rows(rows + 1);
      rows = padded_rows(rows);
      if (args_.text("--tokenizer-type") == "NullTokenizer" && older != rows) {
        map_.draft().note("NullTokenizer has " + args_.text(from) +
                          " tokens since Megatron-LM core 0.18, and one more before: give --set "
                          "model.vocab=" +
                          std::to_string(older) + " for an older version");
      }
    }
    map_.set(from, "model.vocab", std::to_string(rows));
    if (rows == args_.count(from)) {
      return map_.reclass(from, KeyClass::kMapped, "model.vocab");
    }
    map_.changed(from, args_.text(from) + " tokens there, padded to " + std::to_string(rows) +
                           " rows of the table, which take part in the softmax; model.vocab has "
                           "the rows");
  }

  void weights() {
    map_.set("--untie-embeddings-and-output-weights", "model.tie_embeddings",
             args_.has("--untie-embeddings-and-output-weights") ? "false" : "true");
    map_.set("--norm-epsilon", "model.norm_eps", format_number(args_.number("--norm-epsilon")));
    map_.set("--init-method-std", "model.init_std",
             format_number(args_.number("--init-method-std")));
  }

  void dropout() {
    const double attention = args_.number("--attention-dropout");
    const double hidden = args_.number("--hidden-dropout");
    map_.set("--hidden-dropout", "model.dropout", format_number(hidden));
    if (attention == hidden) {
      map_.set("--attention-dropout", "model.dropout", format_number(attention));
    } else {
      map_.stop("--attention-dropout",
                "attention has dropout " + format_number(attention) + " there, and " +
                    format_number(hidden) + " of --hidden-dropout here",
                "give --attention-dropout and --hidden-dropout one value");
    }
  }

  void rotary() {
    map_.set("--rotary-base", "model.rope_theta", args_.text("--rotary-base"));
    if (!args_.has("--use-rope-scaling")) {
      if (args_.has("--rope-scaling-factor")) {
        map_.reclass("--rope-scaling-factor", KeyClass::kIgnored,
                     "no effect without --use-rope-scaling");
      }
      return;
    }
    map_.set("--use-rope-scaling", "model.rope_scaling", "llama3");
    map_.set("--rope-scaling-factor", "model.rope_factor",
             format_number(args_.number("--rope-scaling-factor")));
    map_.set("--use-rope-scaling", "model.rope_low_freq_factor", "1");
    map_.set("--use-rope-scaling", "model.rope_high_freq_factor", "4");
    map_.set("--use-rope-scaling", "model.rope_original_seq", "8192");
  }

  const MegatronArgs& args_;
  PeerMap& map_;
};

}  // namespace

void map_megatron_model(MegatronRun& run) { ModelMap(run).run(); }

}  // namespace sluice::migrate
