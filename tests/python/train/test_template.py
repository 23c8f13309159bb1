"""What is learned: the answers with one end token each, nothing of the prompt, nothing after the end."""

from __future__ import annotations

import pytest
import torch
from transformers import PreTrainedTokenizerFast

import tiny_chat as tiny
from tigon.demo import model as demo
from tigon.train.collator import PaddingCollator
from tigon.train.dataset import encode, split
from tigon.train.formats import Sample
from tigon.train.options import OptionError
from tigon.train.template import IGNORE, PLAIN_TEMPLATE, Encoded, Template, truncate

EOS = 2


def chat(*contents: str) -> Sample:
    roles = ("user", "assistant")
    return Sample([{"role": roles[i % 2], "content": text} for i, text in enumerate(contents)])


def learned(encoded: Encoded | None) -> list[int]:
    assert encoded is not None
    return [label for label in encoded.labels if label != IGNORE]


def test_only_the_answer_and_its_end_are_learned(tokenizer: PreTrainedTokenizerFast) -> None:
    encoded = Template(tokenizer).encode(chat("Hi", "Hello"))
    hello, newline = tokenizer.encode("Hello")[0], tokenizer.encode("\n")[0]
    assert encoded is not None
    assert learned(encoded) == [hello, EOS]
    assert encoded.input_ids[-1] == newline
    assert encoded.labels[-1] == IGNORE
    assert [t for t, label in zip(encoded.input_ids, encoded.labels, strict=True) if label != IGNORE] == [hello, EOS]


def test_every_answer_of_a_conversation_is_learned(tokenizer: PreTrainedTokenizerFast) -> None:
    sample = chat("Hi", "one", "go on", "two", "thanks")
    encode = tokenizer.encode
    assert learned(Template(tokenizer).encode(sample)) == [*encode("one"), EOS, *encode("two"), EOS]
    assert learned(Template(tokenizer, loss_scale="last_round").encode(sample)) == [*encode("two"), EOS]
    sample.messages[1]["loss"] = False
    assert learned(Template(tokenizer).encode(sample)) == [*encode("two"), EOS]


def test_multibyte_answers_are_learned_whole(tokenizer: PreTrainedTokenizerFast) -> None:
    ids = learned(Template(tokenizer).encode(chat("你好", "细胞 😀")))
    assert tokenizer.decode(ids[:-1]) == "细胞 😀"


def test_a_token_across_the_border_belongs_to_the_prompt(tokenizer: PreTrainedTokenizerFast) -> None:
    # "assistant\n" + "\nHello": the tokenizer makes one token of the two newlines.
    assert learned(Template(tokenizer).encode(chat("Hi", "\nHello"))) == [tokenizer.encode("Hello")[0], EOS]


def test_whitespace_answers_keep_their_tokens(tokenizer: PreTrainedTokenizerFast) -> None:
    ids = learned(Template(tokenizer).encode(chat("Hi", "a  b ")))
    assert tokenizer.decode(ids[:-1]) == "a  b "


def test_all_tokens_but_one_end(tokenizer: PreTrainedTokenizerFast) -> None:
    template = Template(tokenizer, loss_scale="all")
    encoded = template.encode(chat("Hi", "Hello"))
    assert encoded is not None
    assert encoded.labels[1:-1] == encoded.input_ids[1:-1]
    assert encoded.labels[-1] == IGNORE
    text = template.encode(Sample(text="abc"))
    assert learned(text) == [*tokenizer.encode("bc"), EOS]


def test_the_end_is_added_where_the_template_has_none() -> None:
    tokenizer = tiny.make_tokenizer(chat_template="{% for m in messages %}{{ m['content'] + ' ' }}{% endfor %}")
    encoded = Template(tokenizer).encode(chat("Hi", "Hello"))
    assert encoded is not None
    assert learned(encoded) == [*tokenizer.encode("Hello "), EOS]
    assert encoded.input_ids.count(EOS) == 1


def test_an_end_in_the_data_is_not_doubled(tokenizer: PreTrainedTokenizerFast) -> None:
    assert learned(Template(tokenizer).encode(chat("Hi", "Hello<|im_end|>"))).count(EOS) == 1


def test_plain_template() -> None:
    tokenizer = tiny.make_tokenizer(chat_template=PLAIN_TEMPLATE)
    encoded = Template(tokenizer).encode(chat("Hi", "Hello"))
    assert encoded is not None
    assert tokenizer.decode(encoded.input_ids) == "Hi\nHello<|im_end|>"
    assert learned(encoded) == [tokenizer.encode("Hello")[0], EOS]


def test_stop_tokens_beside_eos_end_a_turn() -> None:
    tokenizer = tiny.make_tokenizer(eos="<|endoftext|>")
    end_of_turn = tokenizer.convert_tokens_to_ids("<|im_end|>")
    encoded = Template(tokenizer, stop_ids=[end_of_turn]).encode(chat("Hi", "Hello"))
    assert learned(encoded)[-1] == end_of_turn
    assert tokenizer.eos_token_id not in learned(encoded)


def test_system_message(tokenizer: PreTrainedTokenizerFast) -> None:
    encoded = Template(tokenizer, system="Rhyme.").encode(chat("Hi", "Hello"))
    assert encoded is not None
    assert "system\nRhyme.<|im_end|>" in tokenizer.decode(encoded.input_ids)


def test_a_template_that_rewrites_the_prompt_is_an_error() -> None:
    rewriting = (
        "{% for m in messages %}{{ ('Q:' if loop.last else 'q:') + m['content'] + '\\n' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ 'Q:' }}{% endif %}"
    )
    with pytest.raises(OptionError, match="renders a conversation differently"):
        Template(tiny.make_tokenizer(chat_template=rewriting)).encode(chat("Hi", "Hello"))


@pytest.mark.parametrize("sample", [chat("Hi"), chat("Hi", ""), Sample([])])
def test_nothing_to_learn(tokenizer: PreTrainedTokenizerFast, sample: Sample) -> None:
    assert Template(tokenizer).encode(sample) is None


def test_truncation_takes_the_end_with_it(tokenizer: PreTrainedTokenizerFast) -> None:
    encoded = Template(tokenizer).encode(chat("Hi", "Hello there, you"))
    assert encoded is not None
    whole = len(encoded.input_ids)
    assert truncate(encoded, whole, "delete") is encoded
    assert truncate(encoded, whole - 1, "delete") is None
    right = truncate(encoded, whole - 4, "right")
    assert right is not None
    assert len(right.input_ids) == whole - 4
    assert EOS not in learned(right)
    left = truncate(encoded, 6, "left")
    assert left is not None
    assert left.input_ids == encoded.input_ids[-6:]
    assert left.labels[0] == IGNORE
    assert truncate(encoded, 3, "right") is None  # only prompt is left


def test_counts_are_reported(tokenizer: PreTrainedTokenizerFast) -> None:
    samples = [chat("Hi", "Hello"), chat("Hi", "Hello" * 80), chat("Hi", "")]
    summary = encode(samples, Template(tokenizer), 70, "delete").summary()
    assert summary.startswith("1 of 3 samples")
    assert "1 longer than 70 tokens: dropped" in summary
    assert "1 without an answer" in summary
    assert "1 longer than 70 tokens: truncated" in encode(samples, Template(tokenizer), 70, "right").summary()
    with pytest.raises(OptionError, match="no sample is left of 3"):
        encode(samples, Template(tokenizer), 5, "delete")


def test_padding_keeps_each_end_learned(tokenizer: PreTrainedTokenizerFast) -> None:
    template = Template(tokenizer)
    samples = [template.encode(chat("Hi", "Hello")), template.encode(chat("Hi", "Hello there"))]
    batch = PaddingCollator(pad_id=EOS, multiple_of=8)([s for s in samples if s])
    assert batch["input_ids"].shape[1] % 8 == 0
    assert (batch["labels"] == EOS).sum(1).tolist() == [1, 1]
    assert torch.equal(batch["labels"] != IGNORE, (batch["labels"] != IGNORE) & batch["attention_mask"].bool())
    for row, sample in enumerate(samples):
        assert sample is not None
        assert batch["attention_mask"][row].sum() == len(sample.input_ids)
        assert batch["input_ids"][row, : len(sample.input_ids)].tolist() == sample.input_ids


def test_split_is_repeatable() -> None:
    samples = [chat(str(i), "a") for i in range(10)]
    train, held = split(samples, 0.2, seed=1)
    assert (len(train), len(held)) == (8, 2)
    assert split(samples, 0.2, seed=1) == (train, held)
    assert split(samples, 0.2, seed=2) != (train, held)
    assert split(samples, 0.0, seed=1) == (samples, [])


def test_smollm2_itself() -> None:
    """The same on the published tokenizer and template, where the demo has brought them."""
    folder = demo.cache_dir() / demo.FOLDER
    if not folder.is_dir():
        pytest.skip("SmolLM2 is not there: `make demo` brings it")
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    encoded = Template(tokenizer).encode(chat("Hi", "Hello"))
    assert learned(encoded) == [19556, 2]
    assert encoded is not None
    assert encoded.input_ids[-1] == 198
    assert encoded.labels[-1] == IGNORE
