"""One output of a request on its way from tokens to text."""

from __future__ import annotations

from collections.abc import Sequence as Seq
from dataclasses import dataclass, field

from warmgraph_engine.loop import Output
from warmgraph_engine.sampling.sampler import SampledToken, TokenLogprob
from warmgraph_engine.scheduler.sequence import FinishReason, Sequence
from warmgraph_engine.tokenizer.stop import StopStrings
from warmgraph_engine.tokenizer.text import TextModel


@dataclass(frozen=True, slots=True)
class Scored:
    """A token of the answer with its log-probability, and where in the text it begins."""

    token_id: int
    offset: int
    logprob: TokenLogprob | None
    """None for a prompt's first token, which nothing precedes."""


@dataclass(slots=True)
class Piece:
    """What is new of an output."""

    text: str = ""
    scored: list[Scored] = field(default_factory=list)


class Choice:
    """Takes a sequence's tokens in order and gives pieces of text."""

    def __init__(
        self,
        *,
        index: int,
        sequence: Sequence,
        text: TextModel,
        stops: Seq[str],
        skip_special_tokens: bool,
        echo: str | None = None,
    ) -> None:
        """`echo` is the prompt's text if the answer has to begin with it."""
        self.index = index
        self.sequence = sequence
        self.finish_reason: FinishReason | None = None
        self.generated = 0
        """Tokens that count as this output's: none after a stop string."""
        prompt = sequence.tokens[: sequence.prompt_length]
        self._params = sequence.params
        self._detokenizer = text.detokenizer(prompt, skip_special_tokens=skip_special_tokens)
        self._stops = StopStrings(stops)
        self._token_by_token = bool(stops) or self._params.logprobs is not None
        self._decoded = 0
        """Characters of the text so far, whether out or held back."""
        self._sent = 0
        """Characters that are out."""
        self._held: list[Scored] = []
        """Tokens whose text is not out yet."""
        self._echo = echo
        self._prompt_offset = 0
        if echo is not None and self._params.prompt_logprobs is not None:
            self._prompt_detokenizer = text.detokenizer([], skip_special_tokens=skip_special_tokens)

    @property
    def stopped_early(self) -> bool:
        """Ended by a stop string: the engine does not know yet."""
        return self._stops.matched is not None

    def feed(self, outputs: list[Output]) -> Piece:
        """The text that these outputs, none of which is an error, settle."""
        piece = Piece()
        tokens: list[SampledToken] = []
        for output in outputs:
            if output.prompt_logprobs:
                self._add_prompt(piece, output.prompt_logprobs)
            if output.token is not None:
                self.generated += 1
                if output.finish is not FinishReason.STOP:
                    tokens.append(output.token)
            if self._token_by_token:
                self._add(piece, tokens)
                tokens = []
            if self.stopped_early:  # what is still held belongs to the stop string
                self.finish_reason = FinishReason.STOP
                return piece
            self.finish_reason = output.finish
        self._add(piece, tokens)
        if self.finish_reason is not None:
            self._send(piece, self._stops.flush())
            piece.scored += self._held
            self._held = []
        return piece

    def _add(self, piece: Piece, tokens: list[SampledToken]) -> None:
        if not tokens:
            return
        if self._params.logprobs is not None:
            self._start_echo(piece)
            self._held += [Scored(t.token_id, self._decoded, t.logprob) for t in tokens]
        text = self._detokenizer.feed([token.token_id for token in tokens])
        self._decoded += len(text)
        # Below the minimum length a stop string is text like any other.
        if self.generated > self._params.min_tokens:
            text = self._stops.feed(text)
        self._send(piece, text)

    def _add_prompt(self, piece: Piece, logprobs: list[TokenLogprob]) -> None:
        """Log-probabilities of the prompt's tokens, for an answer that echoes it."""
        for scored in logprobs:
            self._start_echo(piece)
            piece.scored.append(Scored(scored.token_id, self._prompt_offset, scored))
            self._prompt_offset += len(self._prompt_detokenizer.feed([scored.token_id]))

    def _start_echo(self, piece: Piece) -> None:
        if self._echo is None:
            return
        if self._params.prompt_logprobs is not None:
            first = self.sequence.tokens[0]
            piece.scored.append(Scored(first, 0, None))
            self._prompt_offset = len(self._prompt_detokenizer.feed([first]))
        piece.text += self._echo
        self._decoded = self._sent = len(self._echo)
        self._echo = None

    def _send(self, piece: Piece, text: str) -> None:
        """Let out text, and the log-probabilities of the tokens that begin in it."""
        self._start_echo(piece)
        piece.text += text
        self._sent += len(text)
        if self._held:
            count = sum(scored.offset < self._sent for scored in self._held)
            piece.scored += self._held[:count]
            del self._held[:count]
