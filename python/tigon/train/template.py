"""From a conversation to token ids and labels: the chat template's text, with only the answers learned."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from tigon.train.formats import Message, Sample
from tigon.train.options import OptionError

IGNORE = -100

# For tokenizers without a chat template: turns joined by newlines, the answer closed by the end-of-sequence token.
PLAIN_TEMPLATE = (
    "{% for message in messages %}{{ message['content'] }}"
    "{{ eos_token if message['role'] == 'assistant' else '\\n' }}{% endfor %}"
)


@dataclasses.dataclass(frozen=True)
class Encoded:
    input_ids: list[int]
    labels: list[int]


class Template:
    """Tokenises samples with the tokenizer's own chat template and marks what is learned.

    The span of an answer is what the template adds to its prompt, found by comparing texts and carried over to
    tokens by character offsets, so no generation marks are needed in the template.
    """

    def __init__(
        self,
        tokenizer: Any,
        *,
        stop_ids: Sequence[int] = (),
        loss_scale: str = "default",
        system: str | None = None,
    ) -> None:
        if not tokenizer.is_fast:
            raise OptionError(f"{type(tokenizer).__name__} gives no character offsets: a fast tokenizer is needed.")
        if tokenizer.eos_token_id is None:
            raise OptionError("the tokenizer has no end-of-sequence token, so the model could never learn to stop.")
        self.tokenizer = tokenizer
        self.eos = int(tokenizer.eos_token_id)
        # Tokens that end a turn in generation, e.g. Gemma's <end_of_turn> beside <eos>.
        self.stop_ids = {self.eos, *stop_ids}
        self.loss_scale = loss_scale
        self.system = system

    def encode(self, sample: Sample) -> Encoded | None:
        """Token ids and labels of one sample; None if it has no answer to learn from."""
        if sample.text is not None:
            ids, _ = self._tokens(sample.text, add_special_tokens=True)
            return self._close(ids, list(ids)) if ids else None
        messages = self._trimmed(sample.messages)
        answers = [i for i, message in enumerate(messages) if self._is_learned(message)]
        if not answers:
            return None
        if self.loss_scale == "last_round":
            answers = answers[-1:]
        text = self._render(messages)
        ids, offsets = self._tokens(text)
        labels = [IGNORE] * len(ids)
        for turn in answers:
            self._learn_answer(messages, turn, text, ids, offsets, labels)
        return self._close(ids, labels)

    def _trimmed(self, messages: list[Message]) -> list[Message]:
        """The conversation up to its last answer, led by the default system message."""
        last = max((i for i, message in enumerate(messages) if message["role"] == "assistant"), default=-1)
        messages = messages[: last + 1]
        if self.system is not None and messages and messages[0]["role"] != "system":
            messages = [{"role": "system", "content": self.system}, *messages]
        return messages

    @staticmethod
    def _is_learned(message: Message) -> bool:
        return message["role"] == "assistant" and message.get("loss", True) and bool(message["content"])

    def _render(self, messages: list[Message], *, prompt: bool = False) -> str:
        text: str = self.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=prompt)
        return text

    def _tokens(self, text: str, *, add_special_tokens: bool = False) -> tuple[list[int], list[tuple[int, int]]]:
        encoding = self.tokenizer(text, add_special_tokens=add_special_tokens, return_offsets_mapping=True)
        return encoding["input_ids"], encoding["offset_mapping"]

    def _learn_answer(
        self,
        messages: list[Message],
        turn: int,
        text: str,
        ids: list[int],
        offsets: list[tuple[int, int]],
        labels: list[int],
    ) -> None:
        prompt = self._render(messages[:turn], prompt=True)
        answer = self._render(messages[: turn + 1])
        if not answer.startswith(prompt) or not text.startswith(answer):
            shorter, longer = (prompt, answer) if not answer.startswith(prompt) else (answer, text)
            at = next((i for i, (a, b) in enumerate(zip(shorter, longer, strict=False)) if a != b), len(longer))
            raise OptionError(
                "the chat template renders a conversation differently once it goes on, so the answer cannot be "
                f"told from the prompt: {shorter[at : at + 40]!r} became {longer[at : at + 40]!r}."
            )
        for i, (begin, _) in enumerate(offsets):
            # A token that straddles the border belongs to the prompt.
            if len(prompt) <= begin < len(answer):
                labels[i] = ids[i]
                if ids[i] in self.stop_ids:
                    return

    def _close(self, ids: list[int], labels: list[int]) -> Encoded:
        """Make the last answer end in one learned stop token, also where the template has none."""
        last = max(i for i, label in enumerate(labels) if label != IGNORE)
        if last == len(ids) - 1 and labels[last] not in self.stop_ids:
            ids, labels, last = [*ids, self.eos], [*labels, self.eos], last + 1
        if self.loss_scale == "all":
            labels = ids[: last + 1] + labels[last + 1 :]
        return Encoded(ids, [IGNORE, *labels[1:]])  # nothing predicts the first token


def truncate(encoded: Encoded, max_length: int, strategy: str) -> Encoded | None:
    """Cut a sample that is too long; None where it must be dropped. What was cut off, its end included, is gone."""
    if len(encoded.input_ids) <= max_length:
        return encoded
    if strategy == "delete":
        return None
    part = slice(None, max_length) if strategy == "right" else slice(-max_length, None)
    ids, labels = encoded.input_ids[part], encoded.labels[part]
    labels[0] = IGNORE
    return Encoded(ids, labels) if any(label != IGNORE for label in labels) else None
